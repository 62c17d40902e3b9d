"""All BELIEF metrics of one model in one setting, as rows of the metrics table."""

from collections.abc import Collection, Mapping

import polars as pl

from factsweep.operators.metrics.belief.analyses import Analysis, analysis_terms
from factsweep.operators.metrics.belief.answers import (
    ACC_AT_1,
    CONSIST,
    COVERAGE_MAXIMUM,
    COVERAGE_ORACLE,
    FLUCTUATION_RANGE,
    FLUCTUATION_SD,
    ONE_WORD_RATIO,
    By,
    CondensedAnswers,
    Draw,
    condense_terms,
    consist_terms,
    coverage_maximum_terms,
)
from factsweep.operators.metrics.belief.calibration import (
    AUROC,
    BRIER,
    ECE,
    OVCONF,
    auroc,
    brier_terms,
    ece,
    ovconf_terms,
    ranked_rounds,
)
from factsweep.operators.metrics.belief.masked import BIAS_LEVEL, OBJECTS_LEFT_OUT
from factsweep.operators.metrics.shared.bootstrap import (
    BootstrapResult,
    Estimate,
    bootstrap_ratios,
    estimate,
)
from factsweep.operators.metrics.shared.rows import Counts, Row, metrics_of, parts, table
from factsweep.operators.schemas import empty

# In the order of their columns; those of other modules of this package come behind them.
_LISTED = (
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
METRICS = metrics_of(str(__package__), _LISTED)
_OF_PAIRS = tuple(metric.name for metric in METRICS if metric.terms is not None)
ESTIMATED = (*_OF_PAIRS, COVERAGE_MAXIMUM.name)  # those of answers that have intervals
_COLUMNS = empty("answers").drop("prompt_id").columns
_NO_TEMPLATES = empty("templates")


def condense(
    answers: pl.DataFrame,
    *,
    by: By = "match",
    analyses: Collection[Analysis] = (),
    templates: pl.DataFrame = _NO_TEMPLATES,
) -> CondensedAnswers:
    """Condense answers for the metrics and some analyses; `by` is how Consist compares them.

    Left out are metrics of columns that the answers lack.
    """
    # Rows are grouped several times faster by numbers than by texts.
    texts = [c for c in answers if c.name in _COLUMNS and c.dtype == pl.String]
    rows = answers.with_columns(
        column.cast(pl.Categorical(pl.Categories.random())) for column in texts
    )
    terms = {
        metric.name: consist_terms(rows, by=by) if metric is CONSIST else metric.terms(rows)
        for metric in METRICS
        if metric.terms is not None and {*metric.columns} <= {*rows.columns}
    }
    terms[COVERAGE_MAXIMUM.name] = coverage_maximum_terms(rows)
    return condense_terms(rows, terms | analysis_terms(analyses, rows, templates, by))


def by_part(
    condensed: CondensedAnswers, details: pl.DataFrame, *, seed: int, n_rounds: int
) -> pl.DataFrame:
    """The metrics of answers by popularity and by sample of the set (table ROWS).

    `details` has pair_id, popularity and sample. Failed prompts are counted over all alone.
    """
    rows = []
    pair_details = details.unique("pair_id", keep="first", maintain_order=True)
    for part, pairs in parts(condensed.pairs, pair_details):
        part_facts = condensed._replace(terms=condensed.terms.join(pairs, on="pair_id", how="semi"))
        estimates = part_facts.estimates(_OF_PAIRS, seed=seed, n_rounds=n_rounds)
        n = int(pairs["n"].sum())
        rows += [
            Row(None, part, name, *bootstrapped.overall, n, 0)
            for name, bootstrapped in estimates.items()
        ]
    return table(rows)


def answer_rows(counts: Counts, estimates: Mapping[str, BootstrapResult]) -> pl.DataFrame:
    """The rows of the metrics of answers (table ROWS); `estimates` are those of ESTIMATED."""
    return table([row for name in ESTIMATED for row in counts.rows(name, estimates[name])])


def fluctuation_rows(
    condensed: CondensedAnswers, counts: Counts, draw: Draw, *, seed: int, n_draws: int
) -> pl.DataFrame:
    """The rows of the fluctuation over draws of templates, or of prompts (table ROWS)."""
    values = condensed.fluctuation(draw, seed=seed, n_draws=n_draws)._asdict()
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
    """The rows of the metrics of confidence (table ROWS).

    ECE and AUROC have no interval where a pair has several prompts (encoder models): their rounds
    would resample prompts.
    """
    draws = {"seed": seed, "n_rounds": n_rounds}
    terms = {"ovconf": ovconf_terms(calibration), "brier": brier_terms(calibration)}
    ratios = bootstrap_ratios(terms, **draws)
    if calibration["pair_id"].is_duplicated().any():
        in_bins, ranked = Estimate(ece(calibration, n_bins)), Estimate(auroc(calibration))
    else:
        rounds = ranked_rounds(calibration, **draws, n_bins=n_bins)
        in_bins, ranked = estimate(rounds["ece"]), estimate(rounds["auroc"])
    return table(
        [
            *counts.rows(OVCONF.name, ratios["ovconf"]),
            counts.row(BRIER.name, ratios["brier"].overall),
            counts.row(ECE.name, in_bins),
            counts.row(AUROC.name, ranked),
        ]
    )
