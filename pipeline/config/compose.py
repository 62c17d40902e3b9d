"""Hydra at the edge: conf/ and the overrides of a command become one plain mapping.

Also several runs from one line, in its grammar: model=a,b seed=0,1 or model=glob(steps/*).
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.override_parser.types import Glob, ValueType
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf

from factsweep.operators.datasets import table_files
from factsweep.operators.errors import FactsweepError, InputError, printable, reason
from factsweep.operators.wording import first_of, suggestion
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.folders import OWN_FACTS
from factsweep.pipeline.config.literal import (
    literal,
    parse,
    parsed,
    quoted,
    split_list,
    types_of,
    unquoted,
)

_MORE = {
    "model": " A model may also be an id of the hub (owner/name) or a folder.",
    "benchmark": " A benchmark may also be a table of facts of your own (benchmark=facts.csv).",
}
_LITERAL = ("target", "benchmark.separator")  # ± and ; are no signs that Hydra reads
_OF_CHATS = ("prompt.as", "prompt.system")
ANY_MODEL = "base/any"
_NEEDED = ("relation", "subject", "object")  # columns of a table of facts


class _OwnFolder(SearchPathPlugin):
    """Has Hydra look into the user's own folder before conf/."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if (folder := folders.own()) is not None:
            search_path.prepend(folders.VARIABLE, f"file://{folder}")


Plugins.instance().register(_OwnFolder)


def choices(group: str) -> list[str]:
    """The names in a group of conf/ and of the user's own folder."""
    return list(folders.files(group))


def keys() -> list[str]:
    """The dotted names of all fields, and those of the groups."""
    return _names(_mapping([]))


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """conf/ with the overrides, every interpolation resolved.

    Raises:
        InputError: an override names no choice or no field, or cannot be read.
    """
    texts = [*map(literal, overrides)]
    if lists := [text for text in texts if several(text)]:
        raise InputError(
            f"{' '.join(lists)} gives several values, where one run takes one; `factsweep study "
            "NAME` measures them all. One value with commas stands in quotes: key='\"a, b\"'."
        )
    named = [each for override in _with_own_facts(texts) for each in _named(override)]
    try:
        return _mapping(named)
    except FactsweepError:
        raise
    except Exception as error:  # Hydra raises whatever it stumbles over: ValueError, TypeError, …
        raise InputError(_refusal(overrides, error)) from error


def _refusal(overrides: Sequence[str], error: Exception) -> str:
    """Which of the overrides cannot be taken, as far as that is known, and why."""
    why = reason(error)
    if unknown := re.search(r"Could not override '([\w.@/]+)'", str(error)):
        key = unknown[1]
        if key in _OF_CHATS:
            return f"{key} is how chats are asked for answers, not masks or scores; leave it out."
        meant = _meant(key)
        return f"there is no key {key} in conf/; `factsweep run --help` lists them.{meant}"
    which = [*map(printable, overrides)]
    if not which:
        return f"conf/ and the folder of your own cannot be read together: {why}."
    what = f"overrides {' '.join(which)} do" if len(which) > 1 else f"override {which[0]} does"
    why = why.removeprefix("OverrideParseException: ")
    return f"the {what} not fit conf/: {why}."


def _with_own_facts(overrides: Sequence[str]) -> list[str]:
    """The overrides, where a file of facts is a benchmark that has its name.

    That is `benchmark=FILE`, or the path of a plain table without a benchmark.
    """
    given = {key: value for key, _, value in (each.partition("=") for each in overrides)}
    path = given.get("benchmark") or given.get("benchmark.path", "")
    place = Path(unquoted(path)).expanduser()
    is_file = place.suffix and place.is_file()
    if not is_file:
        return list(overrides)
    if "benchmark" not in given and not _is_plain_table(place):
        return list(overrides)
    others = [each for each in overrides if not re.match(r"benchmark(\.path)?=", each)]
    name = given.get("benchmark.name", quoted(table_files.title(place)))
    own = {"benchmark": OWN_FACTS, "benchmark.path": quoted(str(place)), "benchmark.name": name}
    return [*others, *(f"{key}={value}" for key, value in own.items())]


def _is_plain_table(path: Path) -> bool:
    """Whether a file is a table with a column for relation, subject and object.

    CSV and TSV are taken for one by their suffix. False for unreadable files.
    """
    import polars as pl  # which help does not need

    from factsweep.operators.datasets.plain_tables import alike

    if table_files.kind(path) not in table_files.TABLES or not path.is_file():
        return False
    if table_files.kind(path) in (".csv", ".tsv", ".txt"):
        return True
    try:
        names = _column_names(path)
    except (InputError, ValueError, OSError, pl.exceptions.PolarsError):
        return False
    return {*_NEEDED} <= {*names, *alike(names, _NEEDED).values()}


def _column_names(path: Path) -> list[str]:
    """The columns, or the fields of the first row in JSON."""
    import polars as pl

    from factsweep.pipeline.machine.text_files import decoded

    if table_files.kind(path) in table_files.JSON:
        row, _ = json.JSONDecoder().raw_decode(decoded(path).lstrip().removeprefix("[").lstrip())
        return list(row) if isinstance(row, dict) else []
    scan = pl.scan_parquet if table_files.kind(path) == ".parquet" else pl.scan_ipc
    return scan(path, glob=False).collect_schema().names()


def _named(override: str) -> list[str]:
    """The override, where a model without a file becomes any model with that id."""
    group, _, name = override.partition("=")
    if f"{group}.".startswith("model.engine."):
        return [f"++{override}"]  # an argument of the engine: conf/ need not have it
    if group not in folders.groups():
        return [override]
    name, known = unquoted(name), choices(group)
    if name in [ANY_MODEL, *known]:
        return [f"{group}={name}"]
    place = Path(name).expanduser()
    if group == "model" and (place.is_dir() or "/" in name):
        id_ = str(place.absolute()) if place.is_dir() else name
        return [f"model={ANY_MODEL}", f"model.id={quoted(id_)}"]
    more = _MORE.get(group, "")
    raise InputError(
        f"there is no {group} {name!r} in conf/{group}/; it has {first_of(known)}."
        f"{suggestion(name, known)}{more}"
    )


def _mapping(overrides: Sequence[str]) -> dict[str, Any]:
    """What Hydra composes of the overrides.

    It takes a tenth of a second for the choice of files: once for all runs of one choice. A value
    is then set as Hydra sets it; what cannot be, Hydra itself refuses, in its words.
    """
    values = [each for each in overrides if _is_value(each)]
    choices = tuple(each for each in overrides if not _is_value(each))
    config = deepcopy(_of_files(choices, _own()))
    try:
        for given in map(parse, values):
            OmegaConf.update(config, given.key_or_group, given.value(), merge=True)
    except Exception:  # of OmegaConf, or of the parser that is generated for Hydra's grammar
        config = _by_hydra(overrides)
    resolved = OmegaConf.to_container(config, resolve=True)
    assert isinstance(resolved, dict)
    return {str(name): value for name, value in resolved.items()}


def _is_value(override: str) -> bool:
    """Whether it sets a field that is there, and chooses, adds or removes nothing."""
    key = _key(override)
    return "=" in override and not re.search(r"[+~@/]", key) and key not in folders.groups()


@lru_cache(maxsize=64)
def _of_files(choices: tuple[str, ...], own: object) -> DictConfig:
    """What the files come to; those of a run's prompts are all that its compositions differ in."""
    prompts = [each for each in choices if _key(each) == "prompt"]
    plain = _plain(prompts[0]) if len(prompts) == 1 else None
    if plain is None:
        return _by_hydra(choices)
    config = deepcopy(_of_files(tuple(each for each in choices if each not in prompts), own))
    config.prompt = plain
    return config


def _plain(prompt: str) -> Any | None:
    """The fields of a prompt's file; null: they are made of other files, by Hydra."""
    path = folders.files("prompt")[prompt.partition("=")[2]]
    found = OmegaConf.load(path)
    made = (
        not OmegaConf.is_dict(found) or "defaults" in found or "@package" in path.read_text("utf-8")
    )
    return None if made else found


def _by_hydra(overrides: Sequence[str]) -> DictConfig:
    with initialize_config_dir(str(folders.CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def _own() -> tuple[tuple[Path, int, int], ...]:
    """The files of the user's own folder, and what tells when one has changed."""
    files = sorted(folder.rglob("*.yaml")) if (folder := folders.own()) else []
    return tuple((path, (held := path.stat()).st_mtime_ns, held.st_size) for path in files)


# What other harnesses and papers call a key, where no letters tell.
_ELSEWHERE = {
    **dict.fromkeys(("model.lora", "model.lora_path", "model.peft"), "model.adapter"),
    **dict.fromkeys(("model.system", "model.system_prompt"), "prompt.system"),
    "model.enable_thinking": "model.thinking",
    "model.quantization": "model.engine.quantization",
    "benchmark.lang": "benchmark.language",
}


def _meant(key: str) -> str:
    other = _ELSEWHERE.get(key)
    return f" Did you mean {other}?" if other else suggestion(key, keys())


def _names(values: Mapping[str, Any]) -> list[str]:
    within = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    inner = [f"{name}.{each}" for name, value in within.items() for each in _names(value)]
    return [*values, *inner]


@dataclass(frozen=True)
class Expanded:
    """The overrides of one of several runs, and those of its values that not all of them share."""

    overrides: tuple[str, ...]
    varied: Mapping[str, str]


def expanded(overrides: Sequence[str]) -> list[Expanded]:
    """Each combination of the values that are given, in their order; the last one varies fastest.

    Raises:
        InputError: a pattern that nothing fits, or one for what has no list of names.

    >>> [each.overrides for each in expanded(["model=gpt2,gpt2-xl", "seed=range(0,2)"])]
    [('model=gpt2', 'seed=0'), ('model=gpt2', 'seed=1'), ('model=gpt2-xl', 'seed=0'), \
('model=gpt2-xl', 'seed=1')]
    """
    given = {each: [f"{_key(each)}={value}" for value in _values_of(each)] for each in overrides}
    several = {_key(each) for each, values in given.items() if values}
    found = []
    for line in product(*(values or [each] for each, values in given.items())):
        split = (each.partition("=") for each in line)
        varied = {key: unquoted(value) for key, _, value in split if key in several}
        found.append(Expanded(line, varied))
    return found


def several(override: str) -> bool:
    """Whether an override gives several values, of which a run takes one.

    >>> several("seed=0,1"), several("benchmark.relations=[P17,P36]")
    (True, False)
    """
    found = parsed(override)
    return found is not None and found.is_sweep_override()


def _values_of(override: str) -> list[str]:
    found = parsed(override)
    if found is None or not found.is_sweep_override():
        return []
    pattern: object = found.value()
    if isinstance(pattern, Glob):
        return _fitting(override, pattern)
    if (
        str in (types_of(_key(override)) or ())
        and found.value_type == ValueType.SIMPLE_CHOICE_SWEEP
    ):
        return split_list(override)
    return list(found.sweep_string_iterator())


def _fitting(override: str, pattern: Glob) -> list[str]:
    """The names of a group, or the folders, that fit a pattern; numbers in them count as such."""
    key = _key(override)
    if any("/" in each for each in pattern.include):
        places = (path for each in pattern.include for path in Path().glob(each) if path.is_dir())
        names = {str(path) for path in places if not any(map(path.match, pattern.exclude))}
        found = [f"./{name}" for name in names]
    elif key in folders.groups():
        found = pattern.filter(list(folders.files(key)))
    else:
        raise InputError(
            f"{override}: patterns are for names in conf/ and for folders (model=glob(steps/*)); "
            "give the values themselves, as in seed=0,1,2."
        )
    if not found:
        raise InputError(f"{override} fits nothing; check the pattern.")
    return sorted(found, key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    """Text and numbers in turns: step-9 before step-10."""
    return [(int(each), "") if each.isdigit() else (-1, each) for each in re.split(r"(\d+)", name)]


def _key(override: str) -> str:
    return override.partition("=")[0]
