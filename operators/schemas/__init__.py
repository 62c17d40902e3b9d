"""The canonical tables: each schema is declared once (tables.yaml) and used by all readers."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import polars as pl
import pyarrow as pa
import yaml

from factsweep.operators.errors import InputError, printable

_TYPES: Mapping[str, pa.DataType] = {
    "text": pa.string(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    **{name: getattr(pa, name)() for name in ("float32", "uint8", "uint16", "uint32")},
}


def _columns(declaration: str) -> list[list[str]]:
    """Name, type and further words of each declared column."""
    columns = re.sub("--.*", "", declaration).split(",")
    return [column.split() for column in columns if column.strip()]


def _arrow_schema(declaration: str, types: Mapping[str, pa.DataType] = _TYPES) -> pa.Schema:
    def arrow_type(name: str) -> pa.DataType:
        return pa.list_(arrow_type(name[:-2])) if name.endswith("[]") else types[name]

    return pa.schema([(name, arrow_type(kind)) for name, kind, *_ in _columns(declaration)])


_CONTENT = yaml.safe_load((Path(__file__).parent / "tables.yaml").read_text("utf-8"))
_STRUCTS = {name: pa.struct(_arrow_schema(text)) for name, text in _CONTENT["types"].items()}
# The text that declares each table, with its comments; its schema; and its key, the column in which
# no value may occur twice.
DECLARATIONS: Mapping[str, str] = {
    name: text.format(**_CONTENT["shared"]) for name, text in _CONTENT["tables"].items()
}
SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {name: _arrow_schema(text, {**_TYPES, **_STRUCTS}) for name, text in DECLARATIONS.items()}
)
KEYS: Mapping[str, str] = MappingProxyType(
    {
        name: column
        for name, text in DECLARATIONS.items()
        for column, _, *marks in _columns(text)
        if marks == ["key"]
    }
)
# The first columns of every table of results: the model, and how it was asked.
SETTING = ("model", "benchmark", "setting", "variant")
# The columns that identify a number of the metrics table.
PLACE = (*SETTING, "slice", "metric")


def conform(frame: pl.DataFrame, table: str) -> pa.Table:
    """The frame as an Arrow table of the canonical schema, columns in its order.

    Raises:
        InputError: a column is missing or does not convert.
    """
    schema = SCHEMAS[table]
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(f"table {table}: column {missing[0]} is missing; add it.")
    try:
        return frame[schema.names].to_arrow().cast(schema)  # no query, unlike `select`
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"table {table}: {error}; expected {schema.to_string()}.") from error


def empty(table: str) -> pl.DataFrame:
    """A frame with the columns of a canonical table and no rows."""
    return pl.DataFrame(schema=pl.Schema(SCHEMAS[table]))


def columns(table: str, *without: str) -> pl.Schema:
    """The columns of a canonical table, but for some, as Polars has them."""
    schema = pl.Schema(SCHEMAS[table])
    return pl.Schema({name: kind for name, kind in schema.items() if name not in without})


def schema(columns: str) -> pl.Schema:
    """The columns of a table that is no canonical one, declared as those are.

    >>> schema("metric text, n_pairs int").dtypes()
    [String, Int64]
    """
    return pl.Schema(_arrow_schema(columns))


def fit_schema(
    table: pl.DataFrame, schema: pl.Schema, name: str, optional: Collection[str] = ()
) -> pl.DataFrame:
    """The columns of the schema, in its types; optional ones may be missing, and are then null.

    A column of nothing but nulls, or of a table without rows, fits every type.

    Raises:
        InputError: it names the table, the column, and both types.

    >>> schema = pl.Schema({"value": pl.String, "note": pl.String})
    >>> fit_schema(pl.DataFrame({"value": [None]}), schema, "triples", ["note"]).dtypes
    [String, String]
    """
    for column, dtype in schema.items():
        actual = table.schema.get(column)
        if actual is None and column not in optional:
            has = ", ".join(map(printable, table.columns))
            raise InputError(
                f"{name}: column {column} is missing; it has {has}: rename or add it, as {dtype}."
            )
        if actual not in (dtype, pl.Null, None) and not table.is_empty():
            raise InputError(
                f"{name}: column {column} is {actual}, and must be {dtype}; convert it."
            )
    return table.select(
        (pl.col(column) if column in table.columns else pl.lit(None).alias(column)).cast(dtype)
        for column, dtype in schema.items()
    )


def refuse(
    rows: pl.DataFrame | pl.LazyFrame,
    problems: Mapping[str, pl.Expr],
    columns: Sequence[str],
    name: str = "",
) -> None:
    """Refuse rows with a problem: `problems` has a sentence per condition of wrong rows.

    Raises:
        InputError: the sentence, with the first wrong row's values of `columns`.

    >>> table = pl.DataFrame({"row": [0, 1], "name": ["Lima", None]})
    >>> refuse(table, {"row {row} has no name; give one.": pl.col("name").is_null()}, ["row"])
    Traceback (most recent call last):
    factsweep.operators.errors.InputError: row 1 has no name; give one.
    """
    first = {
        problem: pl.struct(columns).filter(wrong).first() for problem, wrong in problems.items()
    }
    result = rows.lazy().select(**first).collect(engine="streaming")
    for sentence, row in result.row(0, named=True).items():
        if row is not None:
            raise InputError(name + sentence.format(**row))
