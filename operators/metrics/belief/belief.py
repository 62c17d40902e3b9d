"""All BELIEF metrics of one model in one setting, as rows of the metrics table."""

from collections.abc import Collection, Mapping

import polars as pl

from factsweep.operators.metrics.belief.analyses import Analysis, analysis_terms
from factsweep.operators.metrics.belief.answers import (
    ACC_AT_1,
    CONSIST,
    COVERAGE_MAXIMUM,
    COVERAGE_ORACLE,
    DRAWS,
    FLUCTUATION_RANGE,
    FLUCTUATION_SD,
    ONE_WORD_RATIO,
    By,
    Condensed,
    Draw,
    coded,
    condensed,
    consist_terms,
    coverage_maximum_terms,
)
from factsweep.operators.metrics.belief.calibration import (
    AUROC,
    BRIER,
    ECE,
    OVCONF,
    auroc,
    bootstrap_ranked,
    brier_terms,
    ece,
    ovconf_terms,
)
from factsweep.operators.metrics.belief.masked import BIAS_LEVEL, OBJECTS_LEFT_OUT
from factsweep.operators.metrics.shared.bootstrap import Bootstrapped, Estimate, bootstrap_ratios
from factsweep.operators.metrics.shared.rows import (
    Counts,
    Row,
    counted,
    parts,
    table,
)
from factsweep.operators.schemas import empty

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

_OF_PAIRS = tuple(metric.name for metric in METRICS if metric.terms is not None)
ESTIMATED = (*_OF_PAIRS, COVERAGE_MAXIMUM.name)  # those of answers that have intervals
_NO_TEMPLATES = empty("templates")


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
    known, drawn = condense(answers, by=by), {"seed": seed, "n_rounds": n_rounds}
    estimates = known.estimates(ESTIMATED, **drawn)
    counts = known.counts(n_failed)
    rows = [
        answer_rows(counts, estimates),
        *(fluctuation_rows(known, counts, draw, seed=seed, n_draws=n_draws) for draw in DRAWS),
    ]
    if calibration is not None:
        sampled = counted(calibration, n_failed_samples)
        rows.append(calibration_rows(calibration, sampled, n_bins=n_bins, **drawn))
    return pl.concat(rows)


def condense(
    answers: pl.DataFrame,
    *,
    by: By = "match",
    analyses: Collection[Analysis] = (),
    templates: pl.DataFrame = _NO_TEMPLATES,
) -> Condensed:
    """What the metrics and some analyses need of answers; arguments as in `belief`."""
    # Rows are grouped several times faster by numbers than by texts.
    rows = answers.with_columns(map(coded, answers.drop("prompt_id", strict=False)))
    terms = {
        metric.name: consist_terms(rows, by=by) if metric is CONSIST else metric.terms(rows)
        for metric in METRICS
        if metric.terms is not None
    }
    terms[COVERAGE_MAXIMUM.name] = coverage_maximum_terms(rows)
    return condensed(rows, terms | analysis_terms(analyses, rows, templates, by))


def by_part(known: Condensed, details: pl.DataFrame, *, seed: int, n_rounds: int) -> pl.DataFrame:
    """The metrics of answers over parts of the facts: by popularity, and by sample (table ROWS).

    `details` has pair_id, popularity and sample. No paper has these slices. What failed is counted
    over all alone.
    """
    rows = []
    once = details.unique("pair_id", keep="first", maintain_order=True)
    for part, pairs in parts(known.pairs, once):
        facts = known._replace(terms=known.terms.join(pairs, on="pair_id", how="semi"))
        estimates = facts.estimates(_OF_PAIRS, seed=seed, n_rounds=n_rounds)
        n = int(pairs["n"].sum())
        rows += [
            Row(None, part, name, *estimate.overall, n, 0) for name, estimate in estimates.items()
        ]
    return table(rows)


def answer_rows(counts: Counts, estimates: Mapping[str, Bootstrapped]) -> pl.DataFrame:
    """The rows of the metrics of answers (table ROWS); `estimates` are those of ESTIMATED."""
    return table([row for name in ESTIMATED for row in counts.rows(name, estimates[name])])


def fluctuation_rows(
    known: Condensed, counts: Counts, draw: Draw, *, seed: int, n_draws: int
) -> pl.DataFrame:
    """The rows of the fluctuation over draws of templates, or of prompts (table ROWS)."""
    values = known.fluctuation(draw, seed=seed, n_draws=n_draws)._asdict()
    variant = None if draw == "template" else f"draw={draw}"
    return table(
        [
            counts.row(f"fluctuation_{name}", Estimate(value), variant=variant)
            for name, value in values.items()
        ]
    )


def calibration_rows(
    calibration: pl.DataFrame, counts: Counts, *, seed: int, n_rounds: int, n_bins: int
) -> pl.DataFrame:
    """The rows of the metrics of confidence (table ROWS)."""
    drawn = {"seed": seed, "n_rounds": n_rounds}
    terms = {"ovconf": ovconf_terms(calibration), "brier": brier_terms(calibration)}
    ratios = bootstrap_ratios(terms, **drawn)
    if calibration["pair_id"].is_duplicated().any():
        in_bins, ranked = Estimate(ece(calibration, n_bins)), Estimate(auroc(calibration))
    else:
        in_bins, ranked = bootstrap_ranked(calibration, **drawn, n_bins=n_bins)
    return table(
        [
            *counts.rows(OVCONF.name, ratios["ovconf"]),
            counts.row(BRIER.name, ratios["brier"].overall),
            counts.row(ECE.name, in_bins),
            counts.row(AUROC.name, ranked),
        ]
    )
