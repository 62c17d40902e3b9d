"""BELIEF's analyses of a single run, by name: those that conf/metrics/ asks for."""

from collections.abc import Callable, Collection, Mapping
from typing import Literal

import polars as pl

from factsweep.operators.metrics.belief.calibration import ovconf_by_length
from factsweep.operators.metrics.belief.consist import By
from factsweep.operators.metrics.belief.templates import (
    manual_paraphrase,
    subject_template,
    template_spread,
)
from factsweep.operators.metrics.shared.rows import ROWS

Analysis = Literal["template_spread", "subject_template", "manual_paraphrase", "ovconf_by_length"]


def analyses(
    names: Collection[Analysis],
    answers: pl.DataFrame,
    templates: pl.DataFrame,
    n_failed: pl.DataFrame,
    canary: pl.DataFrame | None,
    *,
    by: By,
    seed: int,
    n_rounds: int,
) -> pl.DataFrame:
    """Make those analyses that are named, as rows of the table ROWS.

    `answers` and `templates` are the canonical tables, `n_failed` has relation_id and n_failed,
    `canary` the log-probabilities of greedy answers: null, and with it no row by length, where none
    were asked for. `by` is how Consist compares answers.
    """
    drawn = {"seed": seed, "n_rounds": n_rounds}
    made: Mapping[str, Callable[[], pl.DataFrame]] = {
        "template_spread": lambda: template_spread(answers, n_failed),
        "subject_template": lambda: subject_template(answers, n_failed, by=by, **drawn),
        "manual_paraphrase": lambda: manual_paraphrase(
            answers, templates, n_failed, by=by, **drawn
        ),
        "ovconf_by_length": lambda: (
            pl.DataFrame(schema=ROWS)
            if canary is None
            else ovconf_by_length(answers, canary, **drawn)
        ),
    }
    tables = [make() for name, make in made.items() if name in names]
    return pl.concat([pl.DataFrame(schema=ROWS), *tables])
