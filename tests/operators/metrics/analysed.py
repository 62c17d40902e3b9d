"""An analysis of BELIEF by itself, from answers."""

import polars as pl

from factsweep.operators.metrics.belief.analyses import (
    ESTIMATED,
    Analysis,
    analyses,
    analysis_terms,
)
from factsweep.operators.metrics.belief.answers import By, condensed
from factsweep.operators.schemas import empty


def analysed(
    name: Analysis,
    answers: pl.DataFrame,
    templates: pl.DataFrame | None = None,
    *,
    by: By = "match",
    n_failed: pl.DataFrame | None = None,
) -> pl.DataFrame:
    templates = empty("templates") if templates is None else templates
    known = condensed(answers, analysis_terms([name], answers, templates, by))
    estimates = known.estimates(ESTIMATED, seed=1, n_rounds=5)
    return analyses([name], known, known.counts(n_failed), estimates, templates)
