"""The canonical tables: each schema is written once here and used by writer, reader and test."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl
import pyarrow as pa

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import facts, matched, prompts, results, said

_ROOMS = (facts, prompts, said, matched, results)

SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {table: schema for room in _ROOMS for table, schema in room.SCHEMAS.items()}
)
# The column in which no value may stand twice.
KEYS: Mapping[str, str] = MappingProxyType(
    {table: key for room in _ROOMS for table, key in room.KEYS.items()}
)


def conform(frame: pl.DataFrame, table: str) -> pa.Table:
    """The frame as an Arrow table of the canonical schema, columns in its order."""
    schema = SCHEMAS[table]
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(f"table {table}: column {missing[0]} is missing; add it.")
    try:
        return frame.select(schema.names).to_arrow().cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"table {table}: {error}; expected {schema.to_string()}.") from error


def empty(table: str) -> pl.DataFrame:
    """A frame with the columns of a canonical table and no rows."""
    frame = pl.from_arrow(SCHEMAS[table].empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame
