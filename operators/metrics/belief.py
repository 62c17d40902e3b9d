"""All BELIEF metrics of one model in one setting, as rows of the metrics table."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from operators.metrics.acc_at_1 import acc_at_1_terms
from operators.metrics.bootstrap import (
    UNDEFINED,
    Bootstrapped,
    Estimate,
    bootstrap_auroc,
    bootstrap_coverage_maximum,
    bootstrap_ece,
    bootstrap_ratio,
)
from operators.metrics.calibration import auroc, brier_terms, ece, ovconf_terms
from operators.metrics.consist import By, consist_terms
from operators.metrics.coverage import coverage_oracle_terms
from operators.metrics.fluctuation import Draw, fluctuation
from operators.metrics.one_word_ratio import one_word_ratio_terms

BELIEF = pl.Schema(
    {
        "variant": pl.String,
        "slice": pl.String,
        "metric": pl.String,
        "value": pl.Float64,
        "ci_low": pl.Float64,
        "ci_high": pl.Float64,
        "n": pl.Int64,
        "n_failed": pl.Int64,
    }
)


class Row(NamedTuple):
    """One row of the table BELIEF."""

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
    ) -> Row:
        """Give the row of a metric over one relation, or over all (None)."""
        counts = (_total(counts, relation) for counts in self)
        part = None if relation is None else f"relation={relation}"
        return Row(variant, part, metric, *estimate, *counts)

    def rows(self, metric: str, bootstrapped: Bootstrapped) -> list[Row]:
        """Give the rows of a metric over all relations and over each."""
        slices = (
            self.row(metric, bootstrapped.by_relation.get(relation, UNDEFINED), relation)
            for relation in sorted(self.n.keys() | self.n_failed.keys())
        )
        return [self.row(metric, bootstrapped.overall), *slices]


def counted(answers: pl.DataFrame, n_failed: pl.DataFrame | None = None) -> Counts:
    """Count the rows of `answers` per relation; `n_failed` has relation_id and n_failed.

    >>> answers = pl.DataFrame({"relation_id": ["P1", "P1", "P2"]})
    >>> counted(answers, pl.DataFrame({"relation_id": ["P2"], "n_failed": [5]}))
    Counts(n={'P1': 2, 'P2': 1}, n_failed={'P2': 5})
    """
    n = answers.group_by("relation_id").agg(n=pl.len())
    if n_failed is None:
        return Counts(_by_relation(n, "n"), {})
    failed = n_failed.group_by("relation_id").agg(pl.sum("n_failed"))
    return Counts(_by_relation(n, "n"), _by_relation(failed, "n_failed"))


def belief(
    answers: pl.DataFrame,
    calibration: pl.DataFrame | None,
    n_failed: pl.DataFrame,
    *,
    seed: int,
    n_draws: int = 50_000,
    n_rounds: int = 1000,
    n_bins: int = 10,
    by: By = "match",
    n_failed_samples: pl.DataFrame | None = None,
) -> pl.DataFrame:
    r"""Compute every BELIEF metric, over all and per relation: one row a number (table BELIEF).

    `answers` has a row a prompt with an answer: relation_id, pair_id, template_id, key, n_lemmas
    and correct. `calibration` has a row a sampled prompt (module `calibration`). `n_failed` and
    `n_failed_samples` (relation_id, n_failed) count the prompts without an answer, or without
    samples; without the latter, none failed. `n` of a row is the number of prompts behind it.
    `by` says how Consist compares answers. Intervals are of 95 %; the fluctuation has none, and
    neither have ECE and AUROC where a pair has several prompts in `calibration` (encoder models):
    their rounds would resample prompts.

    Source: BELIEF, sections 2 and 3; each metric's module says how it departs from them.

    >>> answers = pl.DataFrame({
    ...     "relation_id": ["P1", "P1"], "pair_id": ["t1", "t1"], "template_id": ["a", "b"],
    ...     "key": ["\x1fguitar\x1f", None], "n_lemmas": [1, 0], "correct": [True, False],
    ... })
    >>> n_failed = pl.DataFrame({"relation_id": ["P1"], "n_failed": [1]})
    >>> table = belief(answers, None, n_failed, seed=1, n_draws=10, n_rounds=10)
    >>> table.select("slice", "metric", "value", "n", "n_failed").head(3)
    shape: (3, 5)
    ┌─────────────┬──────────┬───────┬─────┬──────────┐
    │ slice       ┆ metric   ┆ value ┆ n   ┆ n_failed │
    │ ---         ┆ ---      ┆ ---   ┆ --- ┆ ---      │
    │ str         ┆ str      ┆ f64   ┆ i64 ┆ i64      │
    ╞═════════════╪══════════╪═══════╪═════╪══════════╡
    │ null        ┆ acc_at_1 ┆ 0.5   ┆ 2   ┆ 1        │
    │ relation=P1 ┆ acc_at_1 ┆ 0.5   ┆ 2   ┆ 1        │
    │ null        ┆ consist  ┆ 0.0   ┆ 2   ┆ 1        │
    └─────────────┴──────────┴───────┴─────┴──────────┘
    """
    counts = counted(answers, n_failed)
    rows = _answer_rows(answers, counts, by, seed, n_rounds)
    rows += _fluctuation_rows(answers, counts, seed, n_draws)
    if calibration is not None:
        sampled = counted(calibration, n_failed_samples)
        rows += _calibration_rows(calibration, sampled, seed, n_rounds, n_bins)
    return pl.DataFrame(rows, schema=BELIEF, orient="row")


def _answer_rows(
    answers: pl.DataFrame, counts: Counts, by: By, seed: int, n_rounds: int
) -> list[Row]:
    terms: dict[str, Callable[[], pl.DataFrame]] = {
        "acc_at_1": lambda: acc_at_1_terms(answers),
        "consist": lambda: consist_terms(answers, by=by),
        "one_word_ratio": lambda: one_word_ratio_terms(answers),
        "coverage_oracle": lambda: coverage_oracle_terms(answers),
    }
    rows = []
    for metric, of_pairs in terms.items():
        rows += counts.rows(metric, bootstrap_ratio(of_pairs(), seed=seed, n_rounds=n_rounds))
    maximum = bootstrap_coverage_maximum(answers, seed=seed, n_rounds=n_rounds)
    return rows + counts.rows("coverage_maximum", maximum)


def _fluctuation_rows(answers: pl.DataFrame, counts: Counts, seed: int, n_draws: int) -> list[Row]:
    variants: dict[Draw, str | None] = {"template": None, "pair": "draw=pair"}
    rows = []
    for draw, variant in variants.items():
        found = fluctuation(answers, draw=draw, n_draws=n_draws, seed=seed)
        for name, value in found._asdict().items():
            estimate = Estimate(value, None, None)
            rows.append(counts.row(f"fluctuation_{name}", estimate, variant=variant))
    return rows


def _calibration_rows(
    calibration: pl.DataFrame, counts: Counts, seed: int, n_rounds: int, n_bins: int
) -> list[Row]:
    ovconf = bootstrap_ratio(ovconf_terms(calibration), seed=seed, n_rounds=n_rounds)
    brier = bootstrap_ratio(brier_terms(calibration), seed=seed, n_rounds=n_rounds)
    if calibration["pair_id"].is_duplicated().any():
        in_bins = Estimate(ece(calibration, n_bins), None, None)
        ranked = Estimate(auroc(calibration), None, None)
    else:
        in_bins = bootstrap_ece(calibration, seed=seed, n_rounds=n_rounds, n_bins=n_bins)
        ranked = bootstrap_auroc(calibration, seed=seed, n_rounds=n_rounds)
    return [
        *counts.rows("ovconf", ovconf),
        counts.row("brier", brier.overall),
        counts.row("ece", in_bins),
        counts.row("auroc", ranked),
    ]


def _total(counts: dict[str, int], relation: str | None) -> int:
    return sum(counts.values()) if relation is None else counts.get(relation, 0)


def _by_relation(counts: pl.DataFrame, column: str) -> dict[str, int]:
    texts = counts.select(pl.col("relation_id").cast(pl.String), column).sort("relation_id")
    return dict(texts.iter_rows())
