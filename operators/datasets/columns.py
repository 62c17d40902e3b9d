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
    missing = [c for c in expected if c.name not in schema]
    wrong = [c for c in expected if c.name in schema and schema[c.name] not in c.types]
    if not wrong and not any(column.required for column in missing):
        return
    unfit, known = [*missing, *wrong], {c.name for c in expected} - {c.name for c in wrong}
    free = rows.select(name for name in schema if name not in known)
    guesses = guessed(unfit, free.head(_SAMPLE_ROWS).collect())
    problems = (_problem(schema, c) for c in unfit if c.required or c.name in schema)
    lines = [
        f"{', '.join(problems)}; map the columns of {layout} in the catalog entry, or rename those "
        "of the file.",
        *_side_by_side(schema, expected, guesses),
        "Under `columns` in the catalog entry this would fit:",
        *_lines(schema, unfit, guesses),
    ]
    raise InputError("\n".join(lines))


def guessed(missing: Iterable[Column], sample: pl.DataFrame) -> dict[str, str]:
    """Which column of the sample may be meant by each missing one: by content, type and name."""
    both = product(missing, sample)
    return _best((_likeness(column, found), column.name, found.name) for column, found in both)


def _best(scores: Iterable[tuple[float, str, str]]) -> dict[str, str]:
    """From scores of (expected, found): each name's best that no better pair has taken."""
    best: dict[str, str] = {}
    for score, name, found in sorted(scores, key=lambda each: -each[0]):
        if score >= _LIKE and name not in best and found not in best.values():
            best[name] = found
    return best


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
    likely = _best((_ratio(name, found), name, found) for name in missing for found in free)
    renamed = "".join(f", {found} to {name}" for name, found in likely.items())
    raise InputError(
        f"{where}: field {', '.join(missing)} is missing; rename the fields of the file to "
        f"those of {layout}{renamed}.\n" + "\n".join(_beside(expected, [*row]))
    )


def _beside(expected: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    """Both in columns, under their headings."""
    width = max(map(len, ["expected", *expected])) + 3
    for one, other in zip_longest(["expected", *expected], ["found", *found], fillvalue=""):
        yield f"  {one:{width}}{other}"


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, _plain(one), _plain(other)).ratio()


def _likeness(column: Column, found: pl.Series) -> float:
    """How much a column is like the expected one; 0 where its type or its texts speak against."""
    if found.dtype not in column.types or _kind(found) != column.kind:
        return 0.0
    by_name = max(_ratio(name, found.name) for name in (column.name, *column.other_names))
    return by_name + (column.kind in ("relation", "template"))


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


def _plain(name: str) -> str:
    """A name without case and separators, and with the usual words cut short."""
    plain = re.sub(r"[^a-z]+", "", name.lower())
    for long, short in (("subject", "sub"), ("object", "obj"), ("relation", "rel")):
        plain = plain.replace(long, short)
    return plain


def _problem(schema: pl.Schema, column: Column) -> str:
    if column.name not in schema:
        return f"column {column.name} is missing"
    return f"column {column.name} has type {type_name(schema[column.name])}, not {_types(column)}"


def _types(column: Column) -> str:
    return " or ".join(map(type_name, column.types))


def _side_by_side(
    schema: pl.Schema, expected: Sequence[Column], guesses: Mapping[str, str]
) -> Iterator[str]:
    left = [f"{each.name}{'' if each.required else '?'}: {_types(each)}" for each in expected]
    there = {name: f"{name}: {type_name(dtype)}" for name, dtype in schema.items()}
    likely = {name: f"{there[found]} (likely this)" for name, found in guesses.items()}
    right = [(there | likely).get(column.name, "–") for column in expected]
    named = {column.name for column in expected} | set(guesses.values())
    return _beside(left, right + [text for name, text in there.items() if name not in named])


def _lines(schema: pl.Schema, unfit: Sequence[Column], guesses: Mapping[str, str]) -> Iterator[str]:
    for column in unfit:
        if column.name in guesses:
            yield f"  {column.name}: {{from: {guesses[column.name]}}}"
        elif column.required or column.name in schema:
            yield f"  {column.name}: {{from: …}} # no column looks like it"
