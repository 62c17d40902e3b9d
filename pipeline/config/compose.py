"""Hydra at the edge: conf/ and the overrides of a command become one plain mapping.

Also several runs from one line, in its grammar: model=a,b seed=0,1 or model=glob(steps/*).
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
from factsweep.operators.wording import first_of, join_sentences, suggestion
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.folders import OWN_FACTS, OWN_QUESTIONS
from factsweep.pipeline.config.literal_overrides import (
    literal,
    parse,
    quote,
    split_list,
    try_parse,
    types_of,
    unquote,
)
from factsweep.pipeline.machine.text_files import check_utf8, read_decoded

_MORE = {
    "model": " A model may also be an id of the hub (owner/name) or a folder.",
    "benchmark": " A benchmark may also be a table of facts of your own (benchmark=facts.csv).",
}
_OF_CHATS = ("prompt.as", "prompt.system")
_POOL = "model.endpoint.urls"
ANY_MODEL = "base/any"
_COLUMNS = ("relation", "subject", "object")  # of a table of facts


class _OwnFolder(SearchPathPlugin):
    """Has Hydra search the user's own folder before conf/."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if (folder := folders.own_folder()) is not None:
            search_path.prepend(folders.VARIABLE, f"file://{folder}")


Plugins.instance().register(_OwnFolder)


def choices(group: str) -> list[str]:
    """The names in a group of conf/ and of the user's own folder."""
    return list(folders.files(group))


def keys() -> list[str]:
    """The dotted names of all fields, and those of the groups."""
    return _list_dotted_names(_compose_mapping([]))


class _RefusedError(InputError):
    """Overrides that do not fit conf/; `key` is that of the wrong one, if it is known."""

    def __init__(self, sentence: str, key: str | None = None) -> None:
        super().__init__(sentence)
        self.key = key


def compose_config(overrides: Sequence[str]) -> dict[str, Any]:
    """conf/ with the overrides, every interpolation resolved; an InputError if one does not fit."""
    config, faults = compose_fitting(overrides)
    if faults:
        raise InputError(join_sentences(faults))
    return config


def compose_fitting(overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """conf/ with those overrides that fit, and a sentence for each other one.

    Raises:
        InputError: the wrong one is unknown.
    """
    fitting, faults = list(overrides), list[str]()
    while True:
        try:
            return _compose(fitting), faults
        except _RefusedError as error:
            faults.append(str(error))
            n, fitting = len(fitting), [text for text in fitting if _key_of(text) != error.key]
            if len(fitting) == n:
                raise InputError(join_sentences(faults)) from error


def _compose(overrides: Sequence[str]) -> dict[str, Any]:
    texts = [*map(literal, overrides)]
    if lists := [text for text in texts if gives_several_values(text)]:
        raise InputError(
            f"{' '.join(lists)} gives several values, where one run takes one; `factsweep study "
            "NAME` measures them all. One value with commas stands in quotes: key='\"a, b\"'."
        )
    hydra_overrides = [
        o for override in _replace_own_facts(texts) for o in _to_hydra_overrides(override)
    ]
    try:
        return _compose_mapping(hydra_overrides)
    except FactsweepError:
        raise
    except Exception as error:  # Hydra raises errors of any kind: ValueError, TypeError, …
        raise _explain_refusal(overrides, error) from error


def _explain_refusal(overrides: Sequence[str], error: Exception) -> _RefusedError:
    if unknown := re.search(r"Could not override '([\w.@/]+)'", str(error)):
        key = unknown[1]
        if key in _OF_CHATS:
            sentence = f"{key} is how chats are asked for answers, not masks or scores"
            return _RefusedError(f"{sentence}; leave it out.", key)
        renamed = _ELSEWHERE.get(key)
        hint = f" Did you mean {renamed}?" if renamed else suggestion(key, keys())
        sentence = f"there is no key {key} in conf/; `factsweep run --help` lists them.{hint}"
        return _RefusedError(sentence, key)
    problem = reason(error)
    texts = [*map(printable, overrides)]
    if not texts:
        return _RefusedError(
            f"conf/ and the folder of your own cannot be read together: {problem}."
        )
    subject = f"overrides {' '.join(texts)} do" if len(texts) > 1 else f"override {texts[0]} does"
    problem = problem.removeprefix("OverrideParseException: ")
    return _RefusedError(f"the {subject} not fit conf/: {problem}.")


def _replace_own_facts(overrides: Sequence[str]) -> list[str]:
    """The overrides, with a file of facts turned into a benchmark of its name.

    That is `benchmark=FILE`, or the path of a plain table without a benchmark.
    """
    value_by_key = dict(override.split("=", 1) for override in overrides if "=" in override)
    value = value_by_key.get("benchmark") or value_by_key.get("benchmark.path", "")
    path = Path(unquote(value)).expanduser()
    if not path.suffix or not path.is_file():
        return list(overrides)
    from factsweep.operators.datasets.layouts import guess_columns  # help does not need it
    from factsweep.operators.datasets.questions import is_questions

    columns = _read_column_names(path)
    is_too_wide = len(columns) > table_files.MOST_COLUMNS  # the reader of facts refuses it
    names = {*columns, *guess_columns(columns, (*_COLUMNS, "template")).values()}
    is_facts = is_too_wide or {*_COLUMNS} <= names
    has_questions = is_questions(columns) and not (is_facts and "template" in names)
    is_text_table = table_files.kind(path) in (".csv", ".tsv", ".txt")
    if "benchmark" not in value_by_key and not (is_facts or has_questions or is_text_table):
        return list(overrides)
    other_overrides = [text for text in overrides if not re.match(r"benchmark(\.path)?=", text)]
    name = value_by_key.get("benchmark.name", quote(table_files.title(path)))
    facts_by_key = {
        "benchmark": OWN_QUESTIONS if has_questions else OWN_FACTS,
        "benchmark.path": quote(str(path)),
        "benchmark.name": name,
    }
    return [*other_overrides, *(f"{key}={text}" for key, text in facts_by_key.items())]


def _read_column_names(path: Path) -> list[str]:
    """The columns of a table, as far as its first row shows them; none of unreadable files."""
    import polars as pl

    kind = table_files.kind(path)
    if kind not in table_files.TABLES:
        return []
    try:
        if kind in (".parquet", ".arrow", ".feather", ".ipc"):
            scan = pl.scan_parquet if kind == ".parquet" else pl.scan_ipc
            return scan(path, glob=False).collect_schema().names()
        text = read_decoded(path).lstrip()
        if kind in table_files.JSON:  # the fields of the first row
            row, _ = json.JSONDecoder().raw_decode(text.removeprefix("[").lstrip())
            if isinstance(row, dict) and isinstance(rows := row.get("Data"), list) and rows:
                row = rows[0]  # TriviaQA's
            return list(row) if isinstance(row, dict) else []
        header, _, below = text.partition("\n")
        if table_files.SEPARATOR_LINE.fullmatch(header):
            header = below.partition("\n")[0]
        separator = table_files.find_separator(header.strip(), kind)
        return next(csv.reader([header.strip()], delimiter=separator), [])
    except (InputError, ValueError, OSError, csv.Error, pl.exceptions.PolarsError):
        return []


def _to_hydra_overrides(override: str) -> list[str]:
    """Overrides for Hydra; a model without a file becomes any model with that id."""
    group, _, name = override.partition("=")
    if f"{group}.".startswith("model.engine."):
        return [f"++{override}"]  # conf/ need not have an argument of the engine
    if group == _POOL:  # in the place of one URL
        return [f"model.endpoint={{urls: {name}}}"]
    if group not in folders.groups():
        return [override]
    name, names = unquote(name), choices(group)
    if name in [ANY_MODEL, *names]:
        return [f"{group}={name}"]
    path = Path(name).expanduser()
    if group == "model" and (path.is_dir() or "/" in name):
        id_ = str(path.absolute()) if path.is_dir() else name
        return [f"model={ANY_MODEL}", f"model.id={quote(id_)}"]
    raise _RefusedError(
        f"there is no {group} {name!r} in conf/{group}/; it has {first_of(names)}."
        f"{suggestion(name, names)}{_MORE.get(group, '')}",
        group,
    )


def _compose_mapping(overrides: Sequence[str]) -> dict[str, Any]:
    """The composition of the overrides.

    Hydra takes a tenth of a second per choice of files, so that is cached, and values are set
    afterwards. Values that cannot be set are left to Hydra, for its error.
    """
    values = [override for override in overrides if _sets_value(override)]
    choices = tuple(override for override in overrides if not _sets_value(override))
    config = deepcopy(_compose_files(choices, _stat_own_files()))
    try:
        for override in map(parse, values):
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
    except Exception:  # of OmegaConf, or of the generated parser of Hydra's grammar
        config = _compose_by_hydra(overrides)
    resolved = OmegaConf.to_container(config, resolve=True)
    assert isinstance(resolved, dict)
    return {str(name): value for name, value in resolved.items()}


def _sets_value(override: str) -> bool:
    """Whether it sets an existing field, rather than choosing, adding or removing one."""
    key = _key_of(override)
    return "=" in override and not re.search(r"[+~@/]", key) and key not in folders.groups()


@lru_cache(maxsize=64)
def _compose_files(choices: tuple[str, ...], own_files: object) -> DictConfig:
    """The composition of the chosen files; a prompt without defaults is set after the others."""
    prompts = [choice for choice in choices if _key_of(choice) == "prompt"]
    if len(prompts) != 1:
        return _compose_by_hydra(choices)
    path = folders.files("prompt")[prompts[0].partition("=")[2]]
    fields, has_package = OmegaConf.load(path), "@package" in path.read_text("utf-8")
    if not OmegaConf.is_dict(fields) or "defaults" in fields or has_package:
        return _compose_by_hydra(choices)
    config = deepcopy(_compose_files(tuple(c for c in choices if c not in prompts), own_files))
    config.prompt = fields
    return config


def _compose_by_hydra(overrides: Sequence[str]) -> DictConfig:
    with initialize_config_dir(str(folders.CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def _stat_own_files() -> tuple[tuple[Path, int, int], ...]:
    """The files of the user's own folder, with the time and size that show changes."""
    files = sorted(folder.rglob("*.yaml")) if (folder := folders.own_folder()) else []
    for path in files:
        check_utf8(path)
    return tuple((path, (s := path.stat()).st_mtime_ns, s.st_size) for path in files)


# Names of keys in other harnesses and papers that no similarity of letters shows.
_ELSEWHERE = {
    **dict.fromkeys(("model.lora", "model.lora_path", "model.peft"), "model.adapter"),
    **dict.fromkeys(("model.system", "model.system_prompt"), "prompt.system"),
    "model.enable_thinking": "model.thinking",
    "model.quantization": "model.engine.quantization",
    "benchmark.lang": "benchmark.language",
}


def _list_dotted_names(values: Mapping[str, Any]) -> list[str]:
    groups = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    inner = [
        f"{name}.{field}" for name, group in groups.items() for field in _list_dotted_names(group)
    ]
    return [*values, *inner]


@dataclass(frozen=True)
class ExpandedRun:
    """The overrides of one of several runs, and its values of keys that vary."""

    overrides: tuple[str, ...]
    varied: Mapping[str, str]


def expand_runs(overrides: Sequence[str]) -> list[ExpandedRun]:
    """Each combination of the values, in their order; the last key varies fastest.

    Raises:
        InputError: a pattern matches nothing, or its key has no list of names.

    >>> [run.overrides for run in expand_runs(["model=gpt2,gpt2-xl", "seed=range(0,2)"])]
    [('model=gpt2', 'seed=0'), ('model=gpt2', 'seed=1'), ('model=gpt2-xl', 'seed=0'), \
('model=gpt2-xl', 'seed=1')]
    """
    options = {
        text: [f"{_key_of(text)}={value}" for value in _list_swept_values(text)]
        for text in overrides
    }
    varied_keys = {_key_of(text) for text, values in options.items() if values}
    runs = []
    for combination in product(*(values or [text] for text, values in options.items())):
        parts = (override.partition("=") for override in combination)
        varied = {key: unquote(value) for key, _, value in parts if key in varied_keys}
        runs.append(ExpandedRun(combination, varied))
    return runs


def gives_several_values(override: str) -> bool:
    """Whether an override gives several values, while a run takes one.

    >>> gives_several_values("seed=0,1"), gives_several_values("benchmark.relations=[P17,P36]")
    (True, False)
    """
    parsed_override = try_parse(override)
    return parsed_override is not None and parsed_override.is_sweep_override()


def _list_swept_values(override: str) -> list[str]:
    sweep = try_parse(override)
    if sweep is None or not sweep.is_sweep_override():
        return []
    key = _key_of(override)
    pattern: object = sweep.value()
    if isinstance(pattern, Glob):
        return _expand_pattern(override, pattern)
    if str in (types_of(key) or ()) and sweep.value_type == ValueType.SIMPLE_CHOICE_SWEEP:
        return split_list(override)
    return list(sweep.sweep_string_iterator())


def _expand_pattern(override: str, pattern: Glob) -> list[str]:
    """The names of a group, or the folders, that match a pattern: step-9 before step-10."""
    key = _key_of(override)
    if any("/" in glob for glob in pattern.include):
        paths = {path for glob in pattern.include for path in _glob(Path(glob)) if path.is_dir()}
        names = [
            str(path) if path.is_absolute() else f"./{path}"
            for path in paths
            if not any(map(path.match, pattern.exclude))
        ]
    elif key in folders.groups():
        names = pattern.filter(list(folders.files(key)))
    else:
        raise InputError(
            f"{override}: patterns are for names in conf/ and for folders (model=glob(steps/*)); "
            "give the values themselves, as in seed=0,1,2."
        )
    if not names:
        raise InputError(f"{override} fits nothing; check the pattern.")

    def with_numbers(name: str) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", name)
        return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]

    return sorted(names, key=with_numbers)


def _glob(pattern: Path) -> Iterator[Path]:
    root = Path(pattern.anchor)
    return root.glob(str(pattern.relative_to(root)))


def _key_of(override: str) -> str:
    return override.partition("=")[0]
