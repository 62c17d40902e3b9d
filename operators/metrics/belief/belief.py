"""All BELIEF metrics of one model in one setting, as rows of the metrics table."""

from collections.abc import Collection, Mapping
from typing import Unpack

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
    brier_terms,
    ovconf_terms,
    ranked_rounds,
)
from factsweep.operators.metrics.belief.confidence_kinds import (
    CLUSTERS,
    N_CLUSTERS,
    SEMANTIC_ENTROPY,
    variant_of,
)
from factsweep.operators.metrics.belief.masked import BIAS_LEVEL, OBJECTS_LEFT_OUT
from factsweep.operators.metrics.belief.risk_coverage import AURC, AURC_EXCESS, PRR
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.metrics.shared.rows import (
    Counts,
    Row,
    count_answers,
    metrics_of,
    pair_terms,
    parts,
    table,
)
from factsweep.operators.schemas import empty

CONFIDENCE = (OVCONF, ECE, BRIER, AUROC, AURC, AURC_EXCESS, PRR, SEMANTIC_ENTROPY, N_CLUSTERS)
# In the order of their columns; those of other modules of this package come behind them.
_LISTED = (
    ACC_AT_1,
    FLUCTUATION_RANGE,
    FLUCTUATION_SD,
    CONSIST,
    *CONFIDENCE,
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
    condensed: CondensedAnswers, details: pl.DataFrame, **draws: Unpack[bootstrap.Draws]
) -> pl.DataFrame:
    """The metrics of answers by popularity and by sample of the set (table ROWS).

    `details` has pair_id, popularity and sample. Failed prompts are counted over all alone.
    """
    rows = []
    pair_details = details.unique("pair_id", keep="first", maintain_order=True)
    for part, pairs in parts(condensed.pairs, pair_details):
        part_facts = condensed._replace(terms=condensed.terms.join(pairs, on="pair_id", how="semi"))
        estimates = part_facts.estimates(_OF_PAIRS, **draws)
        n = int(pairs["n"].sum())
        rows += [
            Row(None, part, name, *bootstrapped.overall, n, 0)
            for name, bootstrapped in estimates.items()
        ]
    return table(rows)


def answer_rows(counts: Counts, estimates: Mapping[str, bootstrap.BootstrapResult]) -> pl.DataFrame:
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
            counts.row(f"fluctuation_{name}", bootstrap.Estimate(value), variant=variant)
            for name, value in values.items()
        ]
    )


def calibration_rows(
    calibration: pl.DataFrame,
    counts: Counts,
    *,
    n_bins: int,
    variant: str | None = None,
    is_probability: bool = True,
    **draws: Unpack[bootstrap.Draws],
) -> pl.DataFrame:
    """The rows of the metrics of confidence (table ROWS); of a mere order, those of its ranking.

    Metrics that order the prompts have no interval where a pair has several (encoder models): their
    rounds would resample prompts.
    """
    rows: list[Row] = []
    bins_or_none = n_bins if is_probability else None
    if is_probability:
        terms = {"ovconf": ovconf_terms(calibration), "brier": brier_terms(calibration)}
        ratios = bootstrap.bootstrap_ratios(terms, **draws)
        rows += counts.rows(OVCONF.name, ratios["ovconf"], variant)
        rows.append(counts.row(BRIER.name, ratios["brier"].overall, variant=variant))
    if calibration["pair_id"].is_duplicated().any():
        draws["n_rounds"] = 0
    rounds = ranked_rounds(calibration, **draws, n_bins=bins_or_none)
    for name, values in rounds.items():
        rows.append(counts.row(name, bootstrap.estimate(values), variant=variant))
    return table(rows)


def kind_rows(
    confidences: pl.DataFrame,
    n_failed_samples: pl.DataFrame | None,
    *,
    n_bins: int,
    **draws: Unpack[bootstrap.Draws],
) -> pl.DataFrame:
    """The rows of each kind of confidence but `samples` (table ROWS), from the table `confidences`.

    `n_failed` counts the undefined confidences; of samples' clusters, prompts without samples.
    """
    tables = [table([])]
    for kind in confidences["kind"].unique().sort():
        rows, is_entropy = confidences.filter(kind=kind), kind in CLUSTERS
        defined = rows.drop_nulls("confidence")
        undefined = rows.group_by("relation_id").agg(n_failed=pl.col("confidence").null_count())
        counts = count_answers(defined, n_failed_samples if is_entropy else undefined)
        tables.append(
            calibration_rows(
                defined,
                counts,
                **draws,
                n_bins=n_bins,
                variant=variant_of(kind),
                is_probability=not is_entropy,
            )
        )
        if is_entropy:
            entropy, n_clusters = 0 - pl.col("confidence"), pl.col("n_clusters")
            terms = {
                SEMANTIC_ENTROPY.name: pair_terms(defined, entropy.sum(), pl.len()),
                N_CLUSTERS.name: pair_terms(defined, n_clusters.sum(), pl.len()),
            }
            for name, bootstrapped in bootstrap.bootstrap_ratios(terms, **draws).items():
                tables.append(table(counts.rows(name, bootstrapped, variant_of(kind))))
    return pl.concat(tables)
