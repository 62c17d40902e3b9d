"""A table of facts as somebody has it: which columns it has, and what of their values is unfit."""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from factsweep.operators import wording
from factsweep.operators.construction.facts import ALIASES, NEEDED, as_day
from factsweep.operators.datasets import plain_tables
from factsweep.operators.datasets.layouts import is_structured
from factsweep.operators.datasets.object_types import type_name, unread_types
from factsweep.operators.datasets.plain_tables import MEANT, alike, listed
from factsweep.operators.datasets.table_files import kind
from factsweep.operators.errors import InputError
from factsweep.operators.matching.typed import TYPES
from factsweep.operators.schemas import refuse
from factsweep.pipeline.config import folders
from factsweep.pipeline.inputs import sources

_MORE = ("subject_id", "object_id", *ALIASES, "popularity", "sample", "date", "language", "type")
SEPARATOR_OPTION = "--separator "


def read(path: Path, language: str, separator: str | None = None) -> tuple[pl.DataFrame, list[str]]:
    """The facts of a table with their rows, from 0, and languages; and what to say of the columns.

    Rows are in `language` unless they say otherwise. Cells are split at a `separator`.

    Raises:
        InputError: a needed column or all rows are missing; a popularity that is no number, or
            other names that are no list.
    """
    facts = sources.rows(path, as_written=True)
    given = facts.columns
    meant = alike(given, (*NEEDED, *_MORE))
    facts = facts.rename(meant)
    if missing := [column for column in NEEDED if column not in facts.columns]:
        called = [f"{each} (or {wording.listed(MEANT[each], 'or')})" for each in missing]
        fix = f"name a column {' and one '.join(called)}; one row is one fact"
        if {"relation", "object"} <= {*missing} and kind(path) == ".csv":
            fix += _made_long(path, meant, given)
        lacks = f"no column is {wording.listed(missing, 'or')}"
        raise InputError(f"{path}: {lacks}; it has {', '.join(given)}: {fix}.")
    if facts.is_empty():
        raise InputError(f"{path} has columns and no rows; write one row for each fact.")
    facts = facts.drop("row", strict=False).with_row_index("row")
    notes = [
        *unread_types(facts.lazy()),
        *plain_tables.several(facts.lazy(), SEPARATOR_OPTION, separator),
    ]
    try:
        facts = plain_tables.split(facts, separator) if separator else facts
        plain_tables.check_aliases(facts.lazy(), SEPARATOR_OPTION)
    except InputError as error:
        raise InputError(f"{path}, {error}") from error
    for name in ALIASES:
        if name in facts.columns:
            _check_aliases(facts[name], path)
    texts = [each for each in (*NEEDED, *_MORE) if each in facts.columns and each not in ALIASES]
    _check_single(facts.select(texts), path)
    facts = facts.with_columns(pl.col(texts).cast(pl.String).str.strip_chars())
    if "popularity" in facts.columns:
        _check_popularity(facts.select("popularity"), path)
    if "type" in facts.columns:
        _check_types(facts.select("row", type=type_name(pl.col("type"))), path)
    own = pl.col("language") if "language" in facts.columns else pl.lit(None, pl.String)
    own = own.str.to_lowercase().replace("", None)
    facts = facts.with_columns(language=own.fill_null(language.lower()))
    # A slash would be part of a URL, as the reader has it.
    relation = pl.col("relation").str.replace_all("/", " ")
    columns = [name for name in facts.columns if name != "row" or "row" in given]
    said = [
        *_of_columns(path, columns, meant),
        *_of_languages(facts),
        *(f"{path}: {line}" for line in notes),
    ]
    return facts.with_columns(relation=relation), said


def later(facts: pl.DataFrame, option: str, day: str) -> pl.Series:
    """Whether each fact is of a later date; null where it has none.

    Raises:
        InputError: `day` is no date, or the table has none.
    """
    try:
        first = datetime.date.fromisoformat(day)
    except ValueError as error:
        raise InputError(f"{option} {day}: no date; write it as 2024-12-31.") from error
    if "date" not in facts.columns:
        raise InputError(f"{option} {day}: the table has no column date; add it.")
    return facts.select(as_day(pl.col("date")) > first).to_series()


def strangers(facts: pl.DataFrame) -> Iterator[str]:
    """Which languages share no fact with the first: a study across languages would compare none."""
    subject = pl.col("subject_id") if "subject_id" in facts.columns else pl.col("subject")
    of = facts.select("language", "relation", subject=subject.fill_null(pl.col("subject")))
    first, *others = of.partition_by("language", include_key=True, maintain_order=True)
    for other in others:
        if other.join(first, on=["relation", "subject"], how="semi").is_empty():
            yield (
                f"  no fact in {other['language'][0]} is one in {first['language'][0]}: to compare "
                "languages, give each fact the same relation and subject_id in all of them"
            )


def _made_long(path: Path, meant: Mapping[str, str], given: Sequence[str]) -> str:
    """How a table is made long that has a row per subject, and a column per relation."""
    subject = next((each for each, name in meant.items() if name == "subject"), given[0])
    long = path.with_name(f"{path.stem}-long.csv")
    how = f'index={subject!r}, variable_name="relation", value_name="object"'
    named = "" if subject == "subject" else f'.rename({{{subject!r}: "subject"}})'
    return (
        ". Where a row is a subject and each further column a relation, make the table long: "
        f"`import polars as pl; pl.read_csv({str(path)!r}, infer_schema=False).unpivot({how})"
        f".drop_nulls(){named}.write_csv({str(long)!r})`"
    )


def _of_columns(path: Path, columns: Sequence[str], meant: dict[str, str]) -> Iterator[str]:
    for column, name in meant.items():
        yield f"{path}: column {column.strip()} is read as {name}"
    if unread := [each for each in columns if each not in (*NEEDED, *_MORE)]:
        more = ", ".join(each for each in _MORE if each not in columns)
        yield f"{path}: not read: {', '.join(unread)}; further columns that are: {more}"


def _of_languages(facts: pl.DataFrame) -> Iterator[str]:
    """Of which languages nothing but encoders can be asked, as there are no words."""
    known = folders.files("language")
    for each in facts["language"].unique(maintain_order=True):
        if each != "en" and each not in known:
            row = int((facts["language"] == each).arg_max() or 0)
            yield (
                f"  language {each!r} (row {row}, counted from 0) has no words: write a code such "
                f"as de, or {folders.OWN}/language/{each}.yaml; there are {', '.join(known)}"
            )


def _check_single(facts: pl.DataFrame, path: Path) -> None:
    for column in facts:
        is_unfit = column.is_not_null()  # a list or an object of JSON, Parquet or a cell of CSV
        if not column.dtype.is_nested():
            text = pl.col(column.name).cast(pl.String)
            is_unfit = column.to_frame().select(is_structured(text)).to_series()
        for row in is_unfit.arg_true().head(1):
            raise InputError(
                f"{path}, row {row} (counted from 0): {column.name} is "
                f"{column.slice(row, 1).to_list()[0]}; write one value in each row."
            )


def _check_popularity(facts: pl.DataFrame, path: Path) -> None:
    given = pl.col("popularity").replace("", None)
    is_number = given.cast(pl.Float64, strict=False).is_finite().fill_null(value=False)
    unfit = (
        ", row {row} (counted from 0): popularity {popularity!r} is no number; correct it, or "
        "leave it empty."
    )
    problems = {unfit: given.is_not_null() & ~is_number}
    refuse(facts.with_row_index("row"), problems, ["row", "popularity"], str(path))


def _check_types(facts: pl.DataFrame, path: Path) -> None:
    """Refuse a type that is none, in a column that has types."""
    kind, is_type = pl.col("type"), pl.col("type").is_in(TYPES)
    unfit = f", row {{row}} (counted from 0): type {{type!r}} is none of {', '.join(TYPES)}."
    refuse(facts, {unfit: is_type.any() & ~is_type & (kind != "")}, ["row", "type"], str(path))


def _check_aliases(column: pl.Series, path: Path) -> None:
    for row, value in enumerate(column):
        place = f"{path}, row {row} (counted from 0)"
        names: object = value.to_list() if isinstance(value, pl.Series) else value
        if isinstance(value, str):
            try:
                names = listed(value, column.name, row)
            except InputError as error:
                example = json.dumps([value], ensure_ascii=False)
                raise InputError(f"{path}, {str(error)[:-1]}: {example} is one name.") from error
        are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if names is not None and not are_texts:
            raise InputError(
                f"{place}: {column.name} is {value}, and names are texts; write them in quotation "
                "marks."
            )
