"""All BELIEF metrics of one model in one setting, as rows of the metrics table."""

from collections.abc import Iterator

import polars as pl

from factsweep.operators.metrics.belief.acc_at_1 import ACC_AT_1
from factsweep.operators.metrics.belief.calibration import (
    AUROC,
    BRIER,
    ECE,
    OVCONF,
    auroc,
    bootstrap_auroc,
    bootstrap_ece,
    brier_terms,
    ece,
    ovconf_terms,
)
from factsweep.operators.metrics.belief.consist import CONSIST, By, consist_terms
from factsweep.operators.metrics.belief.coverage import (
    COVERAGE_MAXIMUM,
    COVERAGE_ORACLE,
    bootstrap_coverage_maximum,
)
from factsweep.operators.metrics.belief.fluctuation import (
    FLUCTUATION_RANGE,
    FLUCTUATION_SD,
    Draw,
    fluctuation,
)
from factsweep.operators.metrics.belief.masked import BIAS_LEVEL, OBJECTS_LEFT_OUT
from factsweep.operators.metrics.belief.one_word_ratio import ONE_WORD_RATIO
from factsweep.operators.metrics.shared.bootstrap import Estimate, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import Counts, Row, counted, ratio_rows, table
from factsweep.operators.metrics.shared.slices import of_facts

# In the order of their columns. A metric with `terms` is computed by being listed here.
METRICS = (
    ACC_AT_1,
    FLUCTUATION_RANGE,
    FLUCTUATION_SD,
    CONSIST,
    OVCONF,
    ECE,
    BRIER,
    AUROC,
    ONE_WORD_RATIO,
    COVERAGE_MAXIMUM,
    COVERAGE_ORACLE,
    BIAS_LEVEL,
    OBJECTS_LEFT_OUT,
)

_IDS = ("relation_id", "pair_id", "template_id")


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
    """Compute every BELIEF metric, over all and per relation: one row per number (table ROWS).

    `answers` has one row per answered prompt (relation_id, pair_id, template_id, key, n_lemmas,
    correct), `calibration` one per sampled prompt (module `calibration`). `n_failed` and
    `n_failed_samples` (null: none failed) count the prompts without an answer, or without samples.
    `by` says how Consist compares answers. Intervals are of 95 %; the fluctuation has none, and
    neither have ECE and AUROC where a pair has several prompts in `calibration` (encoder models):
    their rounds would resample prompts.

    Source: BELIEF, sections 2 and 3; each metric's module says how it departs from them.
    """
    # Millions of rows are grouped several times faster by numbers than by texts.
    numbered = pl.Categorical(pl.Categories.random())
    answers = answers.with_columns(pl.col(_IDS).cast(pl.String).cast(numbered))
    counts = counted(answers, n_failed)
    rows = _answer_rows(answers, counts, by, seed, n_rounds)
    rows += _fluctuation_rows(answers, counts, seed, n_draws)
    if calibration is not None:
        sampled = counted(calibration, n_failed_samples)
        rows += _calibration_rows(calibration, sampled, seed, n_rounds, n_bins)
    return table(rows)


def by_part(
    answers: pl.DataFrame, details: pl.DataFrame, *, seed: int, n_rounds: int, by: By = "match"
) -> pl.DataFrame:
    """The metrics of answers over parts of the facts: by popularity, and by sample (table ROWS).

    `details` has pair_id, popularity and sample. No paper has these slices. What failed is counted
    over all alone.
    """
    rows = []
    once = details.unique("pair_id", keep="first", maintain_order=True)
    for part, mine in of_facts(answers, once):
        for name, terms in _terms(mine, by):
            found = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds).overall
            rows.append(Row(None, part, name, *found, mine.height, 0))
    return table(rows)


def _terms(answers: pl.DataFrame, by: By) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each metric that has terms, with those of its pairs."""
    for metric in METRICS:
        if metric.terms is not None:
            consist = metric is CONSIST
            yield metric.name, consist_terms(answers, by=by) if consist else metric.terms(answers)


def _answer_rows(
    answers: pl.DataFrame, counts: Counts, by: By, seed: int, n_rounds: int
) -> list[Row]:
    rows = []
    for name, terms in _terms(answers, by):
        rows += ratio_rows(name, terms, counts, seed=seed, n_rounds=n_rounds)
    maximum = bootstrap_coverage_maximum(answers, seed=seed, n_rounds=n_rounds)
    return rows + counts.rows(COVERAGE_MAXIMUM.name, maximum)


def _fluctuation_rows(answers: pl.DataFrame, counts: Counts, seed: int, n_draws: int) -> list[Row]:
    variants: dict[Draw, str | None] = {"template": None, "pair": "draw=pair"}
    rows = []
    for draw, variant in variants.items():
        found = fluctuation(answers, draw=draw, n_draws=n_draws, seed=seed)
        for name, value in found._asdict().items():
            rows.append(counts.row(f"fluctuation_{name}", Estimate(value), variant=variant))
    return rows


def _calibration_rows(
    calibration: pl.DataFrame, counts: Counts, seed: int, n_rounds: int, n_bins: int
) -> list[Row]:
    drawn = {"seed": seed, "n_rounds": n_rounds}
    ovconf = ratio_rows(OVCONF.name, ovconf_terms(calibration), counts, **drawn)
    brier = bootstrap_ratio(brier_terms(calibration), **drawn)
    if calibration["pair_id"].is_duplicated().any():
        in_bins, ranked = Estimate(ece(calibration, n_bins)), Estimate(auroc(calibration))
    else:
        in_bins = bootstrap_ece(calibration, **drawn, n_bins=n_bins)
        ranked = bootstrap_auroc(calibration, **drawn)
    return [
        *ovconf,
        counts.row(BRIER.name, brier.overall),
        counts.row(ECE.name, in_bins),
        counts.row(AUROC.name, ranked),
    ]
