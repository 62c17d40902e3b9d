"""How much of the input was left out of a set, and why."""

from collections.abc import Mapping

import polars as pl


def counts(rows: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Count the rows with a reason: relation_id, unit (the key of their table), reason, count.

    Tables have relation_id and reason, which is null where a row was used.

    >>> triples = pl.DataFrame({"relation_id": ["P36", "P36"], "reason": ["no_label", None]})
    >>> counts({"triple": triples}).rows()
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
