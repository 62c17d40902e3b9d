"""Other names that stand in a file of their own: joined to the rows by id."""

import polars as pl

from factsweep.operators.datasets.layouts import decoded
from factsweep.operators.errors import InputError

_IDS = {"sub_aliases": "sub_uri", "obj_aliases": "obj_uris"}
NAMED = tuple(_IDS)


def with_aliases(rows: pl.LazyFrame, column: str, labels: pl.DataFrame) -> pl.LazyFrame:
    """The rows with the column `sub_aliases` or `obj_aliases`, from names by id.

    `labels` has the columns `entity_id` and `labels` (list[str]). An id may be the end of a URL. An
    entity that is missing there has no other names.

    Raises:
        InputError: the rows have no ids.

    >>> labels = pl.DataFrame({"entity_id": ["Q142"], "labels": [["France", "Gaul"]]})
    >>> rows = pl.LazyFrame({"sub_uri": ["Q142", "Q38"]})
    >>> with_aliases(rows, "sub_aliases", labels).collect()["sub_aliases"].to_list()
    [['France', 'Gaul'], None]
    """
    ids = _IDS[column]
    rows = decoded(rows)
    schema = rows.collect_schema()
    if ids not in schema:
        raise InputError(f"{column} come from another file by id, and there is no column {ids}.")
    rows = rows.drop(column, strict=False)
    names = labels.lazy().unique("entity_id", keep="first", maintain_order=True)
    names = names.select(id="entity_id", names="labels")
    if schema[ids] == pl.String:
        found = rows.with_columns(id=_last_part(pl.col(ids)))
        found = found.join(names, on="id", how="left", maintain_order="left").drop("id")
        return found.rename({"names": column})
    numbered = rows.with_row_index("at")
    each = numbered.select("at", id=ids).explode("id").with_columns(_last_part(pl.col("id")))
    lists = each.join(names, on="id", how="left", maintain_order="left")
    lists = lists.group_by("at", maintain_order=True).agg(pl.col("names").alias(column))
    return numbered.join(lists, on="at", how="left", maintain_order="left").drop("at")


def _last_part(ids: pl.Expr) -> pl.Expr:
    return ids.str.split("/").list.last()
