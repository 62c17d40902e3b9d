"""Metrics, and rows of their table: over everything, over parts of the facts, and over seeds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Literal, NamedTuple, Unpack

import polars as pl
from polars import selectors as cs

from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    BootstrapResult,
    Draws,
    Estimate,
    bootstrap_ratio,
)
from factsweep.operators.schemas import PLACE, SETTING, columns, schema

ROWS = columns("metrics", *SETTING[:3])
TERMS = schema("relation_id text, pair_id text, numerator float, denominator float")
_ROWS, _ONE = pl.len(), pl.lit(1.0)
_N_DECILES = 10
_ENDS = ("ci_low", "ci_high")


class Row(NamedTuple):
    """One row of the table ROWS."""

    variant: str | None
    slice: str | None
    metric: str
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    n_failed: int


class Counts(NamedTuple):
    """Prompts that entered the numbers, and prompts that failed, per relation."""

    n: dict[str, int]
    n_failed: dict[str, int]

    def row(
        self,
        metric: str,
        estimate: Estimate,
        relation: str | None = None,
        variant: str | None = None,
        part: str | None = None,
    ) -> Row:
        """Give the row of a metric over one relation, or over all (None): the slice `part`."""
        counts = (
            sum(counts.values()) if relation is None else counts.get(relation, 0) for counts in self
        )
        name = part if relation is None else f"relation={relation}"
        return Row(variant, name, metric, *estimate, *counts)

    def rows(
        self, metric: str, bootstrapped: BootstrapResult, variant: str | None = None
    ) -> list[Row]:
        """Give the rows of a metric over all relations and over each."""
        slices = (
            self.row(metric, bootstrapped.by_relation.get(relation, UNDEFINED), relation, variant)
            for relation in sorted(self.n.keys() | self.n_failed.keys())
        )
        return [self.row(metric, bootstrapped.overall, variant=variant), *slices]


def count_answers(
    answers: pl.DataFrame, n_failed: pl.DataFrame | None = None, n: pl.Expr = _ROWS
) -> Counts:
    """Count `answers` per relation, a row each or `n`; `n_failed` has relation_id and n_failed."""
    n_answers = _by_relation(answers.group_by("relation_id").agg(n=n), "n")
    if n_failed is None:
        return Counts(n_answers, {})
    failed = n_failed.group_by("relation_id").agg(pl.sum("n_failed"))
    return Counts(n_answers, _by_relation(failed, "n_failed"))


def count_scored_pairs(asked_pairs: pl.DataFrame, scored: pl.DataFrame) -> Counts:
    """Count per relation the pairs of `asked_pairs` that are in `scored`, and the other pairs.

    Both have pair_id, one row per pair; `asked_pairs` has relation_id, too.
    """
    is_scored = pl.col("pair_id").is_in(scored["pair_id"].implode())
    n_failed = asked_pairs.group_by("relation_id").agg(n_failed=(~is_scored).sum())
    return count_answers(asked_pairs, n_failed, is_scored.sum())


def ratio_rows(
    metric: str,
    terms: pl.DataFrame,
    counts: Counts,
    variant: str | None = None,
    **draws: Unpack[Draws],
) -> list[Row]:
    """Give the rows of a ratio with its interval, from the terms of its pairs (TERMS)."""
    return counts.rows(metric, bootstrap_ratio(terms, **draws), variant)


def plain_rows(
    metric: str, sums: pl.DataFrame, counts: Counts, variant: str | None = None
) -> list[Row]:
    """Give the rows of a ratio without interval; `sums`: relation_id, numerator, denominator.

    >>> terms = {"numerator": [1.0, 1.0], "denominator": [1.0, 3.0]}
    >>> sums = pl.DataFrame({"relation_id": ["P1", "P2"], **terms})
    >>> [row.value for row in plain_rows("x", sums, Counts({"P1": 1, "P2": 3}, {}))]
    [0.5, 1.0, 0.3333333333333333]
    """
    relation, terms = pl.col("relation_id").cast(pl.String), pl.sum("numerator", "denominator")
    by_relation = sums.group_by(relation).agg(terms).sort(relation)
    overall = by_relation.select(pl.lit(None, pl.String).alias("relation_id"), terms)
    value = pl.when(pl.col("denominator") > 0).then(pl.col("numerator") / pl.col("denominator"))
    values = dict(pl.concat([overall, by_relation]).select("relation_id", value).iter_rows())
    return [
        counts.row(metric, Estimate(values.get(relation_id)), relation_id, variant)
        for relation_id in (None, *sorted(counts.n.keys() | counts.n_failed.keys()))
    ]


def table(rows: list[Row]) -> pl.DataFrame:
    """The rows as a table of the schema ROWS."""
    return pl.DataFrame(rows, schema=ROWS, orient="row")


def _by_relation(counts: pl.DataFrame, column: str) -> dict[str, int]:
    texts = counts.select(pl.col("relation_id").cast(pl.String), column).sort("relation_id")
    return dict(texts.iter_rows())


def pair_terms(rows: pl.DataFrame, numerator: pl.Expr, denominator: pl.Expr = _ONE) -> pl.DataFrame:
    """Aggregate each pair of `rows` to its terms: one row per pair, with the columns of TERMS.

    Without a denominator all pairs weigh alike.

    Ids become text and the rows are sorted by them, so that neither the type of an id nor the
    order of the rows changes a later sum or draw.

    >>> rows = pl.DataFrame({
    ...     "relation_id": ["P1", "P1", "P1"], "pair_id": ["t2", "t1", "t1"], "hit": [1, 0, 1]
    ... })
    >>> pair_terms(rows, pl.sum("hit"), pl.len()).rows()
    [('P1', 't1', 1.0, 2.0), ('P1', 't2', 1.0, 1.0)]
    """
    return (
        rows.group_by("relation_id", "pair_id")
        .agg(numerator=numerator, denominator=denominator)
        .select(pl.col(name).cast(dtype) for name, dtype in TERMS.items())
        .sort("relation_id", "pair_id")
    )


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
    with_popularity = popularity.drop_nulls("popularity")
    below = pl.col("popularity").rank("min").cast(pl.Int64) - 1
    return with_popularity.select("pair_id", decile=below * _N_DECILES // pl.len().cast(pl.Int64))


def parts(answers: pl.DataFrame, details: pl.DataFrame, **columns: str) -> Iterator[Part]:
    """The rows by popularity decile, by sample of the set, and by `columns` of the answers.

    `details` has pair_id, popularity and sample, one row per pair. Slices: `popularity=0` to
    `popularity=9`, `sample=…` where there are several, and so on; those that have rows.
    """
    facts = details.join(answers, on="pair_id", how="semi")
    by_decile = answers.join(deciles(facts), on="pair_id", maintain_order="left")
    yield from _by_value("popularity", by_decile, "decile")
    yield from ((f"sample={sample}", rows) for sample, rows in samples(answers, details))
    for name, column in columns.items():
        yield from _by_value(name, answers.drop_nulls(column), column)


def samples(answers: pl.DataFrame, details: pl.DataFrame) -> Iterator[Part]:
    """The rows by the sample that their fact is in, where there are several samples."""
    sample_of_pair = details.select("pair_id", "sample").drop_nulls()
    rows = answers.join(sample_of_pair, on="pair_id", maintain_order="left")
    names = rows["sample"].unique().sort()
    for name in names if names.len() > 1 else ():
        yield name, rows.filter(sample=name)


def _by_value(name: str, rows: pl.DataFrame, column: str) -> Iterator[Part]:
    for value in rows[column].unique().sort():
        yield f"{name}={value}", rows.filter(pl.col(column) == value)


def over_seeds(metrics: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One row for each number of the metrics tables of several seeds.

    `value` is the mean over the seeds that have one, `sd` their standard deviation (over n − 1;
    null of a single one), `n_seeds` their number, of `n_asked`. An interval is null where there are
    several. `n` is the smallest of the seeds', `n_failed` the largest.
    """
    rows = pl.concat(metrics)
    is_single = pl.len() == 1
    summary = rows.group_by(PLACE, maintain_order=True).agg(
        pl.mean("value"),
        *(pl.when(is_single).then(pl.first(name)).alias(name) for name in _ENDS),
        pl.min("n"),
        pl.max("n_failed"),
        sd=pl.std("value"),
        n_seeds=pl.col("value").count().cast(pl.Int64),
        n_asked=pl.len().cast(pl.Int64),
    )
    return summary.select(*rows.columns, "sd", "n_seeds", "n_asked")


def mean_over_seeds(tables: Sequence[pl.DataFrame], *, weight: str | None = None) -> pl.DataFrame:
    """The rows of several seeds' tables with the mean of each number; the other columns name a row.

    Floating-point numbers are averaged, by the integers of the column `weight` if given, which are
    summed. Intervals (ci_low, ci_high) of several seeds are null.
    """
    rows = pl.concat(tables)
    if len(tables) > 1:
        rows = rows.with_columns(cs.by_name(_ENDS, require_all=False) * pl.lit(None, pl.Float64))
    numbers = [name for name, dtype in rows.schema.items() if dtype.is_float()]
    keys = [name for name in rows.columns if name not in (*numbers, weight)]
    if weight is None:
        return rows.group_by(keys, maintain_order=True).agg(pl.mean(*numbers)).select(rows.columns)
    weights = pl.col(weight)
    means = {
        name: (pl.col(name) * weights).sum() / weights.filter(pl.col(name).is_not_null()).sum()
        for name in numbers
    }
    weighted = rows.group_by(keys, maintain_order=True).agg(weights.sum(), **means)
    defined = (pl.when(pl.col(name).is_not_nan()).then(name).alias(name) for name in numbers)
    return weighted.with_columns(*defined).select(rows.columns)


Better = Literal["higher", "lower", "zero"]


@dataclass(frozen=True)
class Metric:
    """A metric's name in the metrics table, and how it is shown.

    `heading` is the title of its column, and of its row on the card; a metric without one stands
    under its name, and one with an empty one is not shown. `says` is its line in the glossary.
    `better` is the direction in which it improves; null: none. `range` has the least and the
    largest possible value. `terms` computes, for a ratio of two sums over pairs, each pair's terms
    from the table `answers`, and from `columns` of the stored answers (text, n_tokens, …); where
    these are not stored, as of encoders, it is undefined.
    """

    name: str
    heading: str | None = None
    says: str = ""
    better: Better | None = None
    range: tuple[float, float] = (0, 1)
    terms: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    columns: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its heading, or else its name; empty where it is not shown."""
        return self.name if self.heading is None else self.heading

    @property
    def is_share(self) -> bool:
        """Whether it says that it is shown as a share: by a heading, and values from -1 to 1."""
        return self.heading is not None and -1 <= self.range[0] <= self.range[1] <= 1


def metrics_of(package: str, listed: Sequence[Metric]) -> tuple[Metric, ...]:
    """The listed metrics, then the others that modules of a package declare, by their names."""
    folder = import_module(package).__path__
    modules = [import_module(f"{package}.{module.name}") for module in iter_modules(folder)]
    declared = (value for module in modules for value in vars(module).values())
    return tuple(dict.fromkeys([*listed, *(v for v in declared if isinstance(v, Metric))]))


def headings(metrics: Iterable[Metric]) -> dict[str, str]:
    """The title of each metric that is shown, by its name and in the order given."""
    return {metric.name: metric.title for metric in metrics if metric.title}


def higher_is_better(metrics: Iterable[Metric]) -> dict[str, bool]:
    """Whether higher is better, for each metric with one better direction.

    >>> higher_is_better([Metric("f1", better="higher"), Metric("ovconf", better="zero")])
    {'f1': True}
    """
    ends = {"higher": True, "lower": False}
    return {metric.name: ends[metric.better] for metric in metrics if metric.better in ends}
