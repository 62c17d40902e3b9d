"""Columns that a reader expects: what to say where a file has others, and which may be meant.

A catalog entry maps them, one line per column: `sub_ent: {from: subject_label}`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import product, zip_longest

import polars as pl

from factsweep.operators.errors import InputError

_SAMPLE_ROWS = 100
_LIKE = 0.6  # the least likeness of two names that makes one a guess for the other
KINDS: Mapping[str, str] = {
    "entity": r"^(.*/)?Q\d+$",
    "relation": r"^(.*/)?P\d+$",
    "template": r"\[X\].*\[Y\]|\[Y\].*\[X\]",
}


@dataclass(frozen=True)
class Column:
    """A column that a reader expects.

    `other_names` are names that other files have for it; `kind` says how its texts look: one of
    KINDS, or null for any.
    """

    name: str
    types: tuple[pl.DataType, ...]
    required: bool
    other_names: tuple[str, ...] = ()
    kind: str | None = None


def type_name(dtype: pl.DataType) -> str:
    """A type as catalog entries write it.

    >>> type_name(pl.List(pl.List(pl.String)))
    'list[list[str]]'
    """
    if isinstance(dtype, pl.List):
        return f"list[{type_name(dtype.inner)}]"  # type: ignore[arg-type]
    names = {pl.String(): "str", pl.Boolean(): "bool", pl.Int64(): "int", pl.Float64(): "float"}
    return next((name for known, name in names.items() if dtype == known), str(dtype))


def check_columns(rows: pl.LazyFrame, expected: Sequence[Column], layout: str) -> None:
    """Refuse rows without the columns that are expected, or with columns of other types.

    Raises:
        InputError: it shows both side by side, and the lines of the catalog entry that would fit.
    """
    schema = rows.collect_schema()
    types = {column.name: " or ".join(map(type_name, column.types)) for column in expected}
    missing = [column for column in expected if column.name not in schema]
    wrong = [c for c in expected if c.name in schema and schema[c.name] not in c.types]
    problems = [f"column {column.name} is missing" for column in missing if column.required] + [
        f"column {column.name} has type {type_name(schema[column.name])}, not {types[column.name]}"
        for column in wrong
    ]
    if not problems:
        return
    unfit, known = [*missing, *wrong], {*types} - {column.name for column in wrong}
    free = rows.select(name for name in schema if name not in known)
    guesses = guessed(unfit, free.head(_SAMPLE_ROWS).collect())
    found = {name: f"{name}: {type_name(dtype)}" for name, dtype in schema.items()}
    beside = {**found, **{name: f"{found[guess]} (likely this)" for name, guess in guesses.items()}}
    others = [text for name, text in found.items() if name not in {*types, *guesses.values()}]
    fitting = [
        f"  {column.name}: {{from: {guesses[column.name]}}}"
        if column.name in guesses
        else f"  {column.name}: {{from: …}} # no column looks like it"
        for column in unfit
        if column.name in guesses or column.required or column.name in schema
    ]
    lines = [
        f"{', '.join(problems)}; map the columns of {layout} in the catalog entry, or rename those "
        "of the file.",
        *_side_by_side(
            [f"{c.name}{'' if c.required else '?'}: {types[c.name]}" for c in expected],
            [*(beside.get(name, "–") for name in types), *others],
        ),
        "Under `columns` in the catalog entry this would fit:",
        *fitting,
    ]
    raise InputError("\n".join(lines))


def check_fields(
    where: str, row: Mapping[str, object], expected: Sequence[str], layout: str
) -> None:
    """Refuse a JSON object without the fields that are expected.

    Raises:
        InputError: it shows both side by side, and which fields may be meant.
    """
    missing = [name for name in expected if name not in row]
    if not missing:
        return
    free = [name for name in row if name not in expected]
    likely = _best((_likeness(name, found), name, found) for name in missing for found in free)
    renamed = "".join(f", {found} to {name}" for name, found in likely.items())
    raise InputError(
        f"{where}: field {', '.join(missing)} is missing; rename the fields of the file to "
        f"those of {layout}{renamed}.\n" + "\n".join(_side_by_side(expected, [*row]))
    )


def _side_by_side(expected: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    width = max(map(len, ["expected", *expected])) + 3
    for one, other in zip_longest(["expected", *expected], ["found", *found], fillvalue=""):
        yield f"  {one:{width}}{other}"


def guessed(missing: Iterable[Column], sample: pl.DataFrame) -> dict[str, str]:
    """Which column of the sample may be meant by each missing one: by content, type and name."""
    kinds = {found.name: _kind(found) for found in sample}
    return _best(
        (
            max(_likeness(name, found.name) for name in (column.name, *column.other_names))
            + (column.kind in ("relation", "template")),
            column.name,
            found.name,
        )
        for column, found in product(missing, sample)
        if found.dtype in column.types and kinds[found.name] == column.kind
    )


def _kind(values: pl.Series) -> str | None:
    """What most of the texts are: one of KINDS, or null."""
    while isinstance(values.dtype, pl.List):
        values = values.explode()
    if values.dtype != pl.String or values.drop_nulls().is_empty():
        return None
    for kind, pattern in KINDS.items():
        if (values.drop_nulls().str.contains(pattern).mean() or 0.0) > 0.9:  # type: ignore[operator]
            return kind
    return None


def _best(scores: Iterable[tuple[float, str, str]]) -> dict[str, str]:
    """From scores of (expected, found): each name's best that no better pair has taken."""
    best: dict[str, str] = {}
    for score, name, found in sorted(scores, key=lambda row: -row[0]):
        if score >= _LIKE and name not in best and found not in best.values():
            best[name] = found
    return best


def _likeness(one: str, other: str) -> float:
    """How alike two names are without case and separators, the usual words cut short."""
    plain = [re.sub(r"[^a-z]+", "", name.lower()) for name in (one, other)]
    for long, short in (("subject", "sub"), ("object", "obj"), ("relation", "rel")):
        plain = [name.replace(long, short) for name in plain]
    return SequenceMatcher(None, plain[0], plain[1]).ratio()
