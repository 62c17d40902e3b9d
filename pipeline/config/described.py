"""A model as its own files describe it: what conf/ leaves open is read from there.

Those are config.json, the headers of the safetensors, and the tokenizer's configuration; weights
are not loaded. A model of the hub needs the network for it once: then its cache has them.
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from factsweep.operators.errors import InputError, reason, refusing
from factsweep.pipeline.config import fit
from factsweep.pipeline.config.fit import Need
from factsweep.pipeline.config.model_files import check_folder
from factsweep.pipeline.config.quantised import bits, in_cache, told_by

_READ = ("architecture", "billions_of_parameters", "max_model_len")
_GIVE = f"give {', '.join(f'model.{name}' for name in _READ)}"
_WEIGHTS = (".bin", ".gguf", ".pt", ".pth", ".safetensors")
_READ_WEIGHTS = {"model.safetensors", "model.safetensors.index.json"}
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# What stands in for what is null, so that the types of the rest can be checked first.
OPEN: Mapping[str, Any] = {
    "name": "model",
    "source": "hub",
    "architecture": "decoder",
    "billions_of_parameters": 1.0,
    "instruction_tuned": False,
    "max_model_len": 1,
    "tensor_parallel": 1,
}
_FLOATS = ("F64", "F32", "F16", "BF16")
_PACKED = ("I32", "U8")
_HUB_S = 10.0
_FOLDER = re.compile(r"~?/|\.\.?/")
# What the name of a checkpoint says of its training, as its makers write it.
_BASE = re.compile(r"(^|[-_.])(base|pt)($|[-_.])", re.IGNORECASE)
_TUNED = re.compile(r"(^|[-_.])(it|instruct|chat|sft|dpo)($|[-_.])", re.IGNORECASE)


class _Source(NamedTuple):
    """Where the files of a model are: a folder, or an id of the hub at a revision."""

    id: str
    revision: str | None
    trust_remote_code: bool


class _Stored(NamedTuple):
    """The numbers of a checkpoint by the type that they are stored in; `bits` of a quantised one.

    Schemes of fewer than 8 bits pack several parameters into a 32-bit integer or a byte.
    """

    counts: Mapping[str, int]
    bits: int | None

    @property
    def billions(self) -> float:
        """The parameters, to four digits."""
        return float(f"{sum(n * self._packed(name) for name, n in self.counts.items()) / 1e9:.4g}")

    def _packed(self, name: str) -> float:
        """How many parameters a number of a type holds."""
        if self.bits is None or name not in _PACKED:
            return 1
        return max(1.0, 8 * _stored_width(name) / self.bits)

    def n_bytes(self, width: int) -> float:
        """Their size in memory; plain floats are converted to `width` bytes, others kept."""
        return sum(
            n * (width if name in _FLOATS else _stored_width(name))
            for name, n in self.counts.items()
        )


def _stored_width(name: str) -> float:
    """Bytes of a number of a type of safetensors: I32, U8, F8_E4M3, F4."""
    bits = re.search(r"\d+", name)
    return int(bits[0]) / 8 if bits else 1


def described(model: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a model, with those that are null filled in as far as they can be known.

    Raises:
        InputError: the model's files cannot be read, or do not tell; it names the field to give.
    """
    found = dict(model)
    if found["adapter"] is not None and Path(found["adapter"]).is_dir():
        found["adapter"] = str(Path(found["adapter"]).absolute())
    found["name"] = _named(found)
    if found["source"] == "endpoint":
        return found
    if found["source"] is None:
        if _FOLDER.match(found["id"]) and not Path(found["id"]).is_dir():
            raise InputError(f"model={found['id']}: there is no such folder; check its path.")
        found["source"] = "path" if Path(found["id"]).is_absolute() else "hub"
    if found["source"] == "path" and Path(found["id"]).is_dir():
        is_loaded = (found["engine"] or {}).get("load_format") != "dummy"
        check_folder(Path(found["id"]), needs_weights=is_loaded)
    if found["source"] != "package" and any(found[name] is None for name in _READ):
        with refusing(
            f"what model={found['id']} says of itself in its config.json", f"repair it, or {_GIVE}"
        ):
            _read(found, cluster)
    width = fit.width(found["dtype"], cluster["device"], lambda: None)
    weights = (found["billions_of_parameters"] or 0) * 1e9 * width
    if found["tensor_parallel"] is None:
        found["tensor_parallel"] = fit.tensor_parallel(found, cluster, Need(weights, 0.0))
    fit.check_shared(found, cluster, weights)
    return found


def _named(found: Mapping[str, Any]) -> str:
    """The name: the last part of the id, where none is given; +ADAPTER, if any."""
    adapter = f"+{_last_part(found['adapter'])}" if found["adapter"] else ""
    return f"{found['name'] or _last_part(found['id'])}{adapter}"


def _last_part(place: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(place).name)


def _read(found: dict[str, Any], cluster: Mapping[str, Any]) -> None:
    on_hub = found["source"] == "hub"
    source = _Source(
        found["id"], found["revision"] if on_hub else None, bool(found["trust_remote_code"])
    )
    config = _config(source)
    text = config.get_text_config()
    if found["architecture"] is None:
        found["architecture"] = _architecture(source, config)
    encoder = found["architecture"] == "encoder"
    stored = None
    if found["billions_of_parameters"] is None:
        said = told_by(config.to_dict(), partial(_json, source))
        stored = _stored(source, bits(said))
        found["billions_of_parameters"] = stored.billions
    per_token = 0.0 if encoder else _cached_per_token(text)
    if found["max_model_len"] is None:
        own = _context(source, text, encoder=encoder)
        found["max_model_len"] = fit.max_model_len(own, per_token, cluster)
    if found["instruction_tuned"] is None:
        found["instruction_tuned"] = False if encoder else _instruction_tuned(source, found["name"])
    if found["tensor_parallel"] is None and encoder:
        found["tensor_parallel"] = 1
    elif found["tensor_parallel"] is None:
        width = fit.width(
            found["dtype"], cluster["device"], lambda: str(config.dtype).removeprefix("torch.")
        )
        billions = float(found["billions_of_parameters"])
        weights = stored.n_bytes(width) if stored else billions * 1e9 * width
        need = Need(weights, per_token * width, int(text.num_attention_heads), _key_heads(text))
        found["tensor_parallel"] = fit.tensor_parallel(found, cluster, need)


def _config(source: _Source) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            source.id,
            revision=source.revision,
            trust_remote_code=source.trust_remote_code,
            local_files_only=source.revision is not None and not _hub_answers(source),
        )
    except Exception as error:
        why = reason(error)
        if "trust_remote_code" in str(error):
            why = "it is code of its own: read it, then pass model.trust_remote_code=true"
        is_folder = source.revision is None
        fix = "check the file" if is_folder else "check the id, the network and HF_TOKEN"
        raise InputError(
            f"the config.json of model={source.id} cannot be read ({why}); {fix}, or {_GIVE}."
        ) from error


def _hub_answers(source: _Source) -> bool:
    """Whether the hub can be reached: its client would try half a minute to read a file of it."""
    from httpx2 import TransportError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().model_info(source.id, revision=source.revision, timeout=_HUB_S)
    except (TransportError, ConnectionError):
        return False
    except HfHubHTTPError:
        return True  # what it refuses is told when the file is asked for
    return True


def _architecture(source: _Source, config: Any) -> str:
    """Decoder or encoder, by the head that the checkpoint was saved with."""
    from transformers.models.auto import modeling_auto as known

    names = config.architectures or []
    masked = set(known.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values())
    causal = set(known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    causal |= set(known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())
    if not config.is_encoder_decoder:
        if any(name in masked for name in names):
            return "encoder"
        if any(name in causal or name.endswith("ForCausalLM") for name in names):
            return "decoder"
    raise InputError(
        f"model={source.id} is {' or '.join(names) or 'of no architecture'} by its config.json, "
        "which neither continues a text nor fills a mask as far as transformers knows; if it "
        "does, give model.architecture=decoder or model.architecture=encoder."
    )


def headers(name: str, revision: str | None) -> Any:
    """What the headers of the safetensors say of a folder, or of a hub's id at a revision."""
    from huggingface_hub import get_local_safetensors_metadata, get_safetensors_metadata

    folder = name if revision is None else cached(name, revision)
    if folder is not None:
        return get_local_safetensors_metadata(folder)
    return get_safetensors_metadata(name, revision=revision)


def _stored(source: _Source, bits: int | None) -> _Stored:
    try:
        found = headers(source.id, source.revision)
    except Exception as error:
        cause, fix = reason(error), ""
        names = [path.name for path in Path(source.id).glob("*")] if source.revision is None else []
        if source.revision is None and _READ_WEIGHTS.isdisjoint(names):
            weights = sorted(name for name in names if name.endswith(_WEIGHTS))
            cause, fix = "it has no weights", "copy them, or "
            if weights:
                cause = f"its weights are in {weights[0]}"
                fix = "save them as model.safetensors (save_pretrained), or "
        raise InputError(
            f"model={source.id} does not tell how many parameters it has, as safetensors would "
            f"({cause}); {fix}give model.billions_of_parameters."
        ) from error
    return _Stored({str(name): n for name, n in found.parameter_count.items()}, bits)


def cached(model_id: str, revision: str) -> Path | None:
    """The snapshot in the hub's cache, where it has all weights; null: it must be asked."""
    if (whole := in_cache(model_id, "model.safetensors", revision)) is not None:
        return whole.parent
    if (index := in_cache(model_id, "model.safetensors.index.json", revision)) is None:
        return None
    shards = set(json.loads(index.read_bytes())["weight_map"].values())
    return index.parent if all((index.parent / shard).is_file() for shard in shards) else None


def _context(source: _Source, text: Any, *, encoder: bool) -> int:
    """How many tokens the model has positions for."""
    found = [getattr(text, name, None) for name in _LENGTHS]
    if encoder:  # some reserve positions, and only their tokenizer tells
        found.append(_json(source, "tokenizer_config.json").get("model_max_length"))
    lengths = [int(each) for each in found if each is not None and 0 < each < 1e9]
    if not lengths:
        raise InputError(
            f"the config.json of model={source.id} does not say how long a text may be; give "
            "model.max_model_len."
        )
    return min(lengths)


def _cached_per_token(text: Any) -> float:
    """How many numbers the cache of keys and values holds for one token."""
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return float(2 * text.num_hidden_layers * _key_heads(text) * width)


def _key_heads(text: Any) -> int:
    """How many heads of keys and values there are; several heads of queries may share one."""
    return int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)


def _instruction_tuned(source: _Source, name: str) -> bool | None:
    """Whether a decoder was tuned to follow instructions; null where its files do not tell.

    A model without a chat template was not. One that has a template need not have been: base models
    ship one, too. Then only a name may tell.
    """
    if _BASE.search(name) or not _has_chat_template(source):
        return False
    return True if _TUNED.search(name) else None


def _has_chat_template(source: _Source) -> bool:
    if _file(source, "chat_template.jinja") is not None:
        return True
    return "chat_template" in _json(source, "tokenizer_config.json")


def _json(source: _Source, name: str) -> dict[str, Any]:
    path = _file(source, name)
    with refusing(f"{path}", "repair it, or fetch it again"):
        return {} if path is None else dict(json.loads(path.read_bytes()))


def _file(source: _Source, name: str) -> Path | None:
    """A file of the model; null if it has none of that name."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    if source.revision is None:
        path = Path(source.id) / name
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(source.id, name, revision=source.revision))
    except EntryNotFoundError:
        return None
