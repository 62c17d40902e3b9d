"""Columns that a reader expects, and what to write in a catalog entry where a file has others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl

from factsweep.operators.errors import InputError


@dataclass(frozen=True)
class Column:
    """A column that a reader expects; `other_names` are names that other files have for it."""

    name: str
    types: tuple[pl.DataType, ...]
    required: bool
    other_names: tuple[str, ...] = ()


def type_name(dtype: pl.DataType) -> str:
    """A type as catalog entries write it.

    >>> type_name(pl.List(pl.List(pl.String)))
    'list[list[str]]'
    """
    if isinstance(dtype, pl.List):
        return f"list[{type_name(dtype.inner)}]"  # type: ignore[arg-type]
    names = {pl.String(): "str", pl.Boolean(): "bool", pl.Int64(): "int", pl.Float64(): "float"}
    return next((name for named_dtype, name in names.items() if dtype == named_dtype), str(dtype))


def check_columns(rows: pl.LazyFrame, expected: Sequence[Column], layout: str) -> None:
    """Refuse rows without the columns that are expected, or with columns of other types.

    Raises:
        InputError: it lists both, and the lines of the catalog entry that would fit.
    """
    schema = rows.collect_schema()
    types = {column.name: " or ".join(map(type_name, column.types)) for column in expected}
    problems, mapping = list[str](), dict[str, str]()
    for column in expected:
        dtype = schema.get(column.name)
        if dtype in column.types:
            continue
        if dtype is not None:
            problems.append(
                f"column {column.name} has type {type_name(dtype)}, not {types[column.name]}"
            )
        elif column.required:
            problems.append(f"column {column.name} is missing")
        if column.required or dtype is not None:
            taken_names = types.keys() | mapping.values()
            free = [
                name for name in schema if name not in taken_names and schema[name] in column.types
            ]
            names = (column.name, *column.other_names)
            guesses = (guess for name in names for guess in get_close_matches(name, free, 1))
            mapping[column.name] = next(guesses, "…")
    if problems:
        required = {column.name: "" if column.required else "?" for column in expected}
        names_expected = (f"{name}{required[name]}: {dtype}" for name, dtype in types.items())
        raise InputError(
            f"{', '.join(problems)}; map the columns of {layout} in the catalog entry, or rename "
            f"those of the file.\n  expected: {', '.join(names_expected)}\n  found: "
            f"{', '.join(f'{name}: {type_name(dtype)}' for name, dtype in schema.items())}\n"
            "Under `columns` in the catalog entry this would fit:\n"
            + "\n".join(f"  {name}: {{from: {guess}}}" for name, guess in mapping.items())
        )


def check_fields(
    place: str, row: Mapping[str, object], expected_fields: Sequence[str], layout_name: str
) -> None:
    """Refuse a JSON object without the fields that are expected.

    Raises:
        InputError: it lists both.
    """
    if missing := [name for name in expected_fields if name not in row]:
        raise InputError(
            f"{place}: field {', '.join(missing)} is missing; rename the fields of the file "
            f"({', '.join(row)}) to those of {layout_name} ({', '.join(expected_fields)})."
        )
