"""A user's table of facts: its columns, and checks of its values."""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from factsweep.operators import wording
from factsweep.operators.construction.facts import ALIASES, NEEDED, parse_day
from factsweep.operators.datasets import plain_tables
from factsweep.operators.datasets.layouts import is_structured
from factsweep.operators.datasets.object_types import type_name, warn_of_unread_types
from factsweep.operators.datasets.plain_tables import MEANT, guess_columns, parse_list
from factsweep.operators.datasets.table_files import kind
from factsweep.operators.errors import InputError
from factsweep.operators.matching.typed_answers import TYPES
from factsweep.operators.schemas import refuse
from factsweep.pipeline.config import folders
from factsweep.pipeline.inputs import files

_MORE = ("subject_id", "object_id", *ALIASES, "popularity", "sample", "date", "language", "type")
SEPARATOR_OPTION = "--separator "


def read(path: Path, language: str, separator: str | None = None) -> tuple[pl.DataFrame, list[str]]:
    """The facts of a table with their rows, from 0, and languages; and notes on the columns.

    Rows without a language of their own are in `language`. Cells are split at a `separator`.

    Raises:
        InputError: a needed column or all rows are missing; a popularity that is no number, or
            other names that are no list.
    """
    facts = files.rows(path, as_written=True)
    columns = facts.columns
    name_by_column = guess_columns(columns, (*NEEDED, *_MORE))
    facts = facts.rename(name_by_column)
    if missing := [column for column in NEEDED if column not in facts.columns]:
        names = [f"{column} (or {wording.join_list(MEANT[column], 'or')})" for column in missing]
        fix = f"name a column {' and one '.join(names)}; one row is one fact"
        if {"relation", "object"} <= {*missing} and kind(path) == ".csv":
            fix += _suggest_unpivot(path, name_by_column, columns)
        lacks = f"no column is {wording.join_list(missing, 'or')}"
        raise InputError(f"{path}: {lacks}; it has {', '.join(columns)}: {fix}.")
    if facts.is_empty():
        raise InputError(f"{path} has columns and no rows; write one row for each fact.")
    facts = facts.drop("row", strict=False).with_row_index("row")
    notes = [
        *warn_of_unread_types(facts.lazy()),
        *plain_tables.warn_of_joined_cells(facts.lazy(), SEPARATOR_OPTION, separator),
    ]
    try:
        facts = plain_tables.split_cells(facts, separator) if separator else facts
        plain_tables.check_aliases(facts.lazy(), SEPARATOR_OPTION)
    except InputError as error:
        raise InputError(f"{path}, {error}") from error
    for name in ALIASES:
        if name in facts.columns:
            _check_aliases(facts[name], path)
    texts = [name for name in (*NEEDED, *_MORE) if name in facts.columns and name not in ALIASES]
    _check_single(facts.select(texts), path)
    facts = facts.with_columns(pl.col(texts).cast(pl.String).str.strip_chars())
    _check_values(facts, path)
    own_language = pl.col("language") if "language" in facts.columns else pl.lit(None, pl.String)
    own_language = own_language.str.to_lowercase().replace("", None)
    facts = facts.with_columns(
        language=own_language.fill_null(language.lower()),
        # The reader would take a slash for a part of a URL.
        relation=pl.col("relation").str.replace_all("/", " "),
    )
    read_as = [
        f"column {column.strip()} is read as {name}" for column, name in name_by_column.items()
    ]
    present = [*(name_by_column.get(column, column) for column in columns), "language"]
    if unread := [name for name in present if name not in (*NEEDED, *_MORE)]:
        optional = ", ".join(name for name in _MORE if name not in present)
        read_as.append(f"not read: {', '.join(unread)}; further columns that are: {optional}")
    lines = [*(f"{path}: {line}" for line in read_as), *_of_languages(facts)]
    return facts, [*lines, *(f"{path}: {line}" for line in notes)]


def is_later(facts: pl.DataFrame, option: str, day: str) -> pl.Series:
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
    return facts.select(parse_day(pl.col("date")) > first).to_series()


def find_unshared_languages(facts: pl.DataFrame) -> Iterator[str]:
    """The languages that share no fact with the first: a study would compare nothing."""
    subject = pl.col("subject_id") if "subject_id" in facts.columns else pl.col("subject")
    subjects = facts.select("language", "relation", subject=subject.fill_null(pl.col("subject")))
    first, *other_languages = subjects.partition_by("language", maintain_order=True)
    for other in other_languages:
        if other.join(first, on=["relation", "subject"], how="semi").is_empty():
            yield (
                f"  no fact in {other['language'][0]} is one in {first['language'][0]}: to compare "
                "languages, give each fact the same relation and subject_id in all of them"
            )


def _suggest_unpivot(path: Path, name_by_column: Mapping[str, str], columns: Sequence[str]) -> str:
    """The command for a table with a row per subject, and a column per relation."""
    subject = next(
        (column for column, name in name_by_column.items() if name == "subject"), columns[0]
    )
    long = path.with_name(f"{path.stem}-long.csv")
    args = f'index={subject!r}, variable_name="relation", value_name="object"'
    renamed = "" if subject == "subject" else f'.rename({{{subject!r}: "subject"}})'
    return (
        ". Where a row is a subject and each further column a relation, make the table long: "
        f"`import polars as pl; pl.read_csv({str(path)!r}, infer_schema=False).unpivot({args})"
        f".drop_nulls(){renamed}.write_csv({str(long)!r})`"
    )


def _of_languages(facts: pl.DataFrame) -> Iterator[str]:
    """The languages without words, in which only encoders can be asked."""
    codes = folders.files("language")
    for language in facts["language"].unique(maintain_order=True):
        if language != "en" and language not in codes:
            row = int((facts["language"] == language).arg_max() or 0)
            yield (
                f"  language {language!r} (row {row}, counted from 0) has no words: write a code "
                f"such as de, or {folders.OWN}/language/{language}.yaml; there are "
                f"{', '.join(codes)}"
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


def _check_values(facts: pl.DataFrame, path: Path) -> None:
    """Refuse a popularity that is no number, and an unknown type in a column that has types."""
    if "popularity" in facts.columns:
        popularity = pl.col("popularity").replace("", None)
        is_number = popularity.cast(pl.Float64, strict=False).is_finite().fill_null(value=False)
        unfit = (
            ", row {row} (counted from 0): popularity {popularity!r} is no number; correct it, or "
            "leave it empty."
        )
        problems = {unfit: popularity.is_not_null() & ~is_number}
        refuse(facts, problems, ["row", "popularity"], str(path))
    if "type" in facts.columns:
        facts = facts.select("row", type=type_name(pl.col("type")))
        is_type = pl.col("type").is_in(TYPES)
        unfit = f", row {{row}} (counted from 0): type {{type!r}} is none of {', '.join(TYPES)}."
        problems = {unfit: is_type.any() & ~is_type & (pl.col("type") != "")}
        refuse(facts, problems, ["row", "type"], str(path))


def _check_aliases(column: pl.Series, path: Path) -> None:
    for row, value in enumerate(column):
        names: object = value.to_list() if isinstance(value, pl.Series) else value
        if isinstance(value, str):
            try:
                names = parse_list(value, column.name, row)
            except InputError as error:
                example = json.dumps([value], ensure_ascii=False)
                raise InputError(f"{path}, {str(error)[:-1]}: {example} is one name.") from error
        are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if names is not None and not are_texts:
            raise InputError(
                f"{path}, row {row} (counted from 0): {column.name} is {value}, and names are "
                "texts; write them in quotation marks."
            )
