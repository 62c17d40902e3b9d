"""The columns that a table must have before a set is made of it."""

import polars as pl

from factsweep.operators.errors import InputError


def check_columns(table: pl.DataFrame, schema: pl.Schema, name: str) -> None:
    """Refuse a table that lacks a column of the schema, or has it with another type.

    A column of nothing but nulls fits every type.

    Raises:
        InputError: it names the table, the column, and both types.
    """
    for column, dtype in schema.items():
        found = table.schema.get(column)
        if found not in (dtype, pl.Null):
            raise InputError(f"{name}: column {column} must be {dtype}, found {found}; repair it.")


def fitted(table: pl.DataFrame, schema: pl.Schema, name: str) -> pl.DataFrame:
    """The table, whose columns of the schema have its types, also where all of one is null.

    Raises:
        InputError: as `check_columns`.

    >>> fitted(pl.DataFrame({"value": [None]}), pl.Schema({"value": pl.String}), "triples").dtypes
    [String]
    """
    check_columns(table, schema, name)
    return table.with_columns(pl.col(column).cast(dtype) for column, dtype in schema.items())
