"""Checks that a model folder was copied whole: shards, index, tokenizer, files of git-lfs."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from factsweep.operators.errors import InputError, input_errors, reason
from factsweep.operators.wording import join_list

_POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_BYTES = 1024  # a pointer has about 130
_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.safetensors|\.bin)")
_WEIGHTS = "model*.safetensors"
# Configurations, tokenizers and chat templates: an engine reads them with the weights.
CONFIGURATION_FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken")
_ADAPTER = "adapter_model.safetensors"
# One of these files has a vocabulary; code may make its own.
_VOCABULARIES = ("tokenizer*", "tekken.json", "vocab*", "*.model", "*.tiktoken", "*.py")
_WITHOUT_VOCABULARY = "tokenizer_config.json"
_MOST_NAMED = 3


def check_pointers(folder: Path) -> None:
    """Refuse files that git-lfs did not fetch."""
    weights = _WEIGHTS if any(folder.glob(_WEIGHTS)) else "pytorch_model*.bin"
    patterns = (weights, *CONFIGURATION_FILES, _ADAPTER)
    read = {path for pattern in patterns for path in folder.glob(pattern)}
    small = (p for p in sorted(read) if p.is_file() and p.stat().st_size <= _POINTER_BYTES)
    if pointers := [path.name for path in small if path.read_bytes().startswith(_POINTER)]:
        raise InputError(
            f"{folder}: {_join_names(pointers)} {_verb(pointers)} only a pointer of git-lfs; fetch "
            f"the content with `git -C {shlex.quote(str(folder))} lfs pull`, or copy it again."
        )


def check_folder(folder: Path, *, needs_weights: bool) -> None:
    """Refuse a folder that is no whole model; with `needs_weights` its weights are checked, too."""
    check_pointers(folder)
    if not (folder / "config.json").is_file():
        raise InputError(_explain_missing_config(folder))
    if not needs_weights:
        return
    missing = sorted(set(_list_missing_shards(folder)))
    if missing:
        raise InputError(
            f"{folder}: {_join_names(missing)} {_verb(missing)} missing, without which the weights "
            f"are not whole; copy {'it' if len(missing) == 1 else 'them'} into the folder."
        )
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.glob(_WEIGHTS)):
        try:
            with safe_open(path, "np"):  # the header holds the length
                pass
        except (SafetensorError, OSError) as error:
            raise InputError(
                f"{path} is cut off or damaged ({reason(error)}); copy it again."
            ) from error


def _explain_missing_config(folder: Path) -> str:
    adapter = folder / "adapter_config.json"
    if not adapter.is_file():
        return f"model={folder} has no config.json; copy it into the folder, or give another."
    with input_errors(str(adapter), "save the adapter again"):
        base = json.loads(adapter.read_text()).get("base_model_name_or_path") or "BASE"
    return (
        f"model={folder} is an adapter and no whole model; give its base model and the adapter: "
        f"model={base} model.adapter={folder}."
    )


def _list_missing_shards(folder: Path) -> Iterator[str]:
    """The missing files that an index names, or that the names of shards imply."""
    names = {path.name for path in folder.iterdir() if path.exists()}
    yield from (path.name for path in folder.glob(_WEIGHTS) if not path.exists())  # a link
    for index in names.intersection(_INDICES):
        with input_errors(str(folder / index), "copy it again"):
            listed_names = set(json.loads((folder / index).read_text())["weight_map"].values())
        yield from listed_names - names
    shards = list(filter(None, map(_SHARD.fullmatch, names)))
    for stem, _, n_shards, suffix in (shard.groups() for shard in shards):
        index = f"{stem}{suffix}.index.json"
        if index in _INDICES and not names & {index, f"{stem}{suffix}"}:
            yield index
            for number in range(1, int(n_shards) + 1):
                name = f"{stem}-{number:05d}-of-{n_shards}{suffix}"
                yield from {name} - names


def check_tokenizer(folder: Path) -> None:
    """Refuse a folder without a tokenizer: some classes would read texts without a vocabulary."""
    check_pointers(folder)
    files = chain.from_iterable(map(folder.glob, _VOCABULARIES))
    if all(path.name == _WITHOUT_VOCABULARY for path in files):
        raise InputError(
            f"{folder} has no tokenizer; copy tokenizer.json and tokenizer_config.json into it "
            "from the model that it was made of."
        )


def _join_names(files: Iterable[str]) -> str:
    names = list(files)
    n_more = len(names) - _MOST_NAMED
    return join_list([*names[:_MOST_NAMED], *([f"{n_more} more"] if n_more > 0 else [])])


def _verb(files: list[str]) -> str:
    return "is" if len(files) == 1 else "are"
