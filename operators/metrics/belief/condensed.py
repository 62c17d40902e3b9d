"""What BELIEF's metrics need of answers: a few rows for each pair and each template.

These tables are made relation by relation and put together (`pl.concat`): memory then holds the
answers of a few relations. The metrics are computed from them in a few seconds.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import polars as pl

from factsweep.operators.metrics.belief.fluctuation import template_rates
from factsweep.operators.metrics.shared.bootstrap import Bootstrapped, bootstrap_ratios
from factsweep.operators.metrics.shared.rows import TERMS, Counts, counted
from factsweep.operators.schemas import schema

PAIRS = schema("relation_id text, pair_id text, n int")
NAMED_TERMS = schema(
    "metric text, relation_id text, pair_id text, numerator float, denominator float"
)
_PAIR = ("relation_id", "pair_id")


class Condensed(NamedTuple):
    """Each pair's number of answers (PAIRS) and its terms of each metric (NAMED_TERMS).

    `rates` are those of `fluctuation.template_rates`.
    """

    pairs: pl.DataFrame
    terms: pl.DataFrame
    rates: pl.DataFrame

    def of(self, metric: str) -> pl.DataFrame:
        """The terms of a metric (TERMS), sorted as those of `pair_terms`."""
        return self.terms.filter(metric=metric).select(TERMS.names()).sort(_PAIR)

    def counts(self, n_failed: pl.DataFrame | None) -> Counts:
        """How many answers each relation has; `n_failed` as in `counted`."""
        return counted(self.pairs, n_failed, pl.sum("n"))

    def estimates(
        self, metrics: Iterable[str], *, seed: int, n_rounds: int
    ) -> dict[str, Bootstrapped]:
        """Some metrics with their intervals."""
        terms = {metric: self.of(metric) for metric in metrics}
        return bootstrap_ratios(terms, seed=seed, n_rounds=n_rounds)


def condensed(answers: pl.DataFrame, terms: Mapping[str, pl.DataFrame]) -> Condensed:
    """What is needed of some answers, of which `terms` are known by metric."""
    pairs = answers.group_by(_PAIR).agg(n=pl.len()).select(_cast(PAIRS)).sort(_PAIR)
    named = [
        rows.with_columns(metric=pl.lit(metric)).select(_cast(NAMED_TERMS))
        for metric, rows in terms.items()
    ]
    return Condensed(pairs, pl.concat([NAMED_TERMS.to_frame(), *named]), template_rates(answers))


def _cast(columns: pl.Schema) -> list[pl.Expr]:
    return [pl.col(name).cast(dtype) for name, dtype in columns.items()]
