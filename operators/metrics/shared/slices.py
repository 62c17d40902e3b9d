"""The parts that knowledge is measured over beside relations: popularity and answer length."""

from collections.abc import Iterator

import polars as pl

N_DECILES = 10


# A slice of the metrics table, and the rows of the answers in it.
Part = tuple[str, pl.DataFrame]


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


def parts(preferred: pl.DataFrame, details: pl.DataFrame) -> Iterator[Part]:
    """The rows by popularity, by sample, and by tokens of the likeliest right label: `tokens=1`."""
    yield from of_facts(preferred, details)
    yield from _parts("tokens", preferred.drop_nulls("n_tokens"), "n_tokens")


def of_facts(answers: pl.DataFrame, details: pl.DataFrame) -> Iterator[Part]:
    """The rows by popularity decile, and by sample of the set.

    `details` has pair_id, popularity and sample, one row per pair. Slices: `popularity=0` to
    `popularity=9`, `sample=…` where there are several; those that have rows.
    """
    mine = details.join(answers, on="pair_id", how="semi")
    by_decile = answers.join(deciles(mine), on="pair_id", maintain_order="left")
    yield from _parts("popularity", by_decile, "decile")
    for sample, rows in samples(answers, details):
        yield f"sample={sample}", rows


def samples(preferred: pl.DataFrame, details: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows by the sample that their fact is in, where there are several samples."""
    known = details.select("pair_id", "sample").drop_nulls()
    rows = preferred.join(known, on="pair_id", maintain_order="left")
    names = rows["sample"].unique().sort()
    for name in names if names.len() > 1 else ():
        yield name, rows.filter(sample=name)


def _parts(name: str, rows: pl.DataFrame, column: str) -> Iterator[Part]:
    for value in rows[column].unique().sort():
        yield f"{name}={value}", rows.filter(pl.col(column) == value)
