"""The canonical tables: each schema is written once here and used by writer, reader and test."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl
import pyarrow as pa

from factsweep.operators.errors import InputError
from factsweep.operators.schemas.tables import SAID, SCHEMAS, declared

__all__ = ["KEYS", "PLACE", "SCHEMAS", "SETTING", "columns", "conform", "empty", "schema"]

# The column in which no value may stand twice.
KEYS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((*SAID, "prompts", "ranked", "content_free"), "prompt_id"),
        **dict.fromkeys(("chosen", "needed", "answers", "sampled", "given"), "prompt_id"),
        **dict.fromkeys(("calibration", "preferred", "continued"), "prompt_id"),
        **dict.fromkeys(("pairs", "crossed", "by_chance"), "pair_id"),
        "relations": "relation_id",
        "templates": "template_id",
        "candidates": "candidate_id",
        "entities": "entity_id",
    }
)
# Who was asked what and how: the first columns of every table of results.
SETTING = ("model", "benchmark", "setting", "variant")
# What identifies a number of the metrics table.
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
    found = pl.Schema(SCHEMAS[table])
    return pl.Schema({name: kind for name, kind in found.items() if name not in without})


def schema(columns: str) -> pl.Schema:
    """The columns of a table that is no canonical one, declared as those are.

    >>> schema("metric text, n_pairs int").dtypes()
    [String, Int64]
    """
    return pl.Schema(declared(columns))
