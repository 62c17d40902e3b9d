"""Tables that somebody gives: their columns as declared, and the first row that is unfit."""

from collections.abc import Collection, Mapping, Sequence

import polars as pl

from factsweep.operators.errors import InputError, printable

Frame = pl.DataFrame | pl.LazyFrame


def fitted(
    table: pl.DataFrame, schema: pl.Schema, name: str, optional: Collection[str] = ()
) -> pl.DataFrame:
    """The columns of the schema, in its types; optional ones may be missing, and are then null.

    A column of nothing but nulls, or of a table without rows, fits every type.

    Raises:
        InputError: it names the table, the column, and both types.

    >>> schema = pl.Schema({"value": pl.String, "note": pl.String})
    >>> fitted(pl.DataFrame({"value": [None]}), schema, "triples", ["note"]).dtypes
    [String, String]
    """
    for column, dtype in schema.items():
        found = table.schema.get(column)
        if found is None and column not in optional:
            has = ", ".join(map(printable, table.columns))
            raise InputError(
                f"{name}: column {column} is missing; it has {has}: rename or add it, as {dtype}."
            )
        if found not in (dtype, pl.Null, None) and not table.is_empty():
            raise InputError(
                f"{name}: column {column} is {found}, and must be {dtype}; convert it."
            )
    return table.select(
        (pl.col(column) if column in table.columns else pl.lit(None).alias(column)).cast(dtype)
        for column, dtype in schema.items()
    )


def refuse(
    rows: Frame, problems: Mapping[str, pl.Expr], shown: Sequence[str], name: str = ""
) -> None:
    """Refuse rows of which one has a problem: sentences, each with the rows that it is true of.

    Raises:
        InputError: the sentence, with what the first such row has in the columns `shown`.

    >>> table = pl.DataFrame({"row": [0, 1], "name": ["Lima", None]})
    >>> refuse(table, {"row {row} has no name; give one.": pl.col("name").is_null()}, ["row"])
    Traceback (most recent call last):
    factsweep.operators.errors.InputError: row 1 has no name; give one.
    """
    first = {each: pl.struct(shown).filter(wrong).first() for each, wrong in problems.items()}
    found = rows.lazy().select(**first).collect(engine="streaming")
    for sentence, row in found.row(0, named=True).items():
        if row is not None:
            raise InputError(name + sentence.format(**row))
