"""The parts that knowledge is measured over beside relations: popularity and answer length."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

N_DECILES = 10


class Part(NamedTuple):
    """A slice of the metrics table, and the rows of `preferred` in it."""

    name: str
    rows: pl.DataFrame


def deciles(popularity: pl.DataFrame) -> pl.DataFrame:
    """Facts in ten parts of equal size by popularity, 0 the least popular: pair_id, decile.

    `popularity` has pair_id and popularity; facts without one are left out. Facts that are equally
    popular share a decile, so that parts are as equal as ties allow.

    >>> facts = pl.DataFrame({"pair_id": ["a", "b", "c", "d"], "popularity": [9.0, 1.0, None, 1.0]})
    >>> deciles(facts).sort("pair_id").rows()
    [('a', 6), ('b', 0), ('d', 0)]
    """
    known = popularity.drop_nulls("popularity")
    below = pl.col("popularity").rank("min").cast(pl.Int64) - 1
    return known.select("pair_id", decile=below * N_DECILES // pl.len().cast(pl.Int64))


def parts(preferred: pl.DataFrame, popularity: pl.DataFrame) -> Iterator[Part]:
    """The rows by popularity decile of their fact, then by tokens of the answer's likeliest label.

    Slices: `popularity=0` to `popularity=9`, `tokens=1` and so on; those that have rows.
    """
    asked = popularity.join(preferred, on="pair_id", how="semi")
    by_decile = preferred.join(deciles(asked), on="pair_id", maintain_order="left")
    for name, column, rows in (
        ("popularity", "decile", by_decile),
        ("tokens", "n_tokens", preferred.drop_nulls("n_tokens")),
    ):
        for value in rows[column].unique().sort():
            yield Part(f"{name}={value}", rows.filter(pl.col(column) == value))
