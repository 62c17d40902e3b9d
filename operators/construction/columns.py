"""What a table must have before a set is made of it, and how much of it was left out."""

from collections.abc import Mapping

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


def left_out(rows: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Count the rows with a reason: relation_id, unit (the key of their table), reason, count.

    Tables have relation_id and reason, which is null where a row was used.

    >>> triples = pl.DataFrame({"relation_id": ["P36", "P36"], "reason": ["no_label", None]})
    >>> left_out({"triple": triples}).rows()
    [('P36', 'triple', 'no_label', 1)]
    """
    found = [
        table.drop_nulls("reason")
        .group_by("relation_id", "reason")
        .agg(count=pl.len().cast(pl.Int64))
        .select("relation_id", pl.lit(unit).alias("unit"), "reason", "count")
        for unit, table in rows.items()
    ]
    return pl.concat(found).sort("relation_id", "unit", "reason")
