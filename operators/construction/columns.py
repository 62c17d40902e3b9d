"""The columns that a table must have before a set is made of it."""

import polars as pl

from operators.errors import InputError


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
