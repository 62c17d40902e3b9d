"""Estimates of the benchmarks whose numbers are means over queries: KAMEL's, and PRobELM's.

A query is a fact with one prompt (KAMEL), or a group with all its candidates (PRobELM): a part of
the prompts is a stratified sample of queries (`stratified.py`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.intervals import Estimated, exactly
from factsweep.operators.estimates.stratified import MISSING, By, Means, controlled_means, means
from factsweep.operators.estimates.table import ESTIMATES, row
from factsweep.operators.metrics.kamel import macro, precision_recall
from factsweep.operators.metrics.probelm import group_tables, with_all_types
from factsweep.operators.metrics.shared.bootstrap import UNDEFINED, Estimate, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import pair_terms

CURVED = "the F1 of a relation is biased where few of its queries were asked"

_SHARES = ("precision", "recall")

# A control: an earlier run's matched answers to all prompts of a relation.
Control = Callable[[str], pl.DataFrame]


class Asked(NamedTuple):
    """What of the full run was asked: its queries by relation, and how many prompts of how many."""

    sizes: pl.DataFrame
    n: int
    n_full: int

    @property
    def is_all(self) -> bool:
        """Whether all prompts were asked and answered."""
        return self.n == self.n_full

    def row(
        self, metric: str, found: Estimated, others: Estimate, plain: Estimated | None = None
    ) -> tuple[object, ...]:
        """A row of the schema ESTIMATES; `plain` is what is estimated without the control."""
        worth = None  # how many prompts would give as narrow an interval without the control
        if plain is not None and found.width and plain.width:
            worth = self.n * (plain.width / found.width) ** 2
        return row(metric, found, others, n=self.n, n_full=self.n_full, worth=worth)


def asked(answers: pl.DataFrame, pairs: pl.DataFrame) -> Asked:
    """Count the answers to a part; `pairs` says what the full run asks (`Part.pairs`)."""
    n_prompts = pl.col("n_names") * pl.col("n_templates") - pl.col("n_failed")
    sizes = pairs.group_by("relation_id").agg(n=pl.len())
    return Asked(sizes, answers.height, int(pairs.select(n_prompts.sum()).item()))


def kamel_estimates(
    answers: pl.DataFrame,
    queries: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    seed: int,
    n_rounds: int,
    control: Control | None = None,
) -> pl.DataFrame:
    """Estimate KAMEL's numbers, of strict matching with all labels: the table ESTIMATES.

    `answers` has pair_id and text, `queries` are all pairs of the split that is asked. Precision
    and recall are means of relations; F1 is the harmonic mean of the two, whose error follows from
    theirs (delta method). A `control` narrows all three.
    """
    of = asked(answers, pairs)
    scores = precision_recall(answers, queries)
    earlier = None if control is None else precision_recall(_everything(control, pairs), queries)
    shares = scores.select("relation_id", "pair_id", *_SHARES)
    found = _means(shares, earlier, of, by="relation", seed=seed)
    known, plain = (_kamel(each) for each in found)
    others = macro(scores, seed=seed, n_rounds=n_rounds)
    whole = others.f1_relation_mean.overall.value if of.is_all else None
    curved = Estimated(None, None, None, CURVED) if whole is None else exactly(whole)
    of_others = (each.overall for each in (others.precision, others.recall, others.f1))
    each_of = zip((*_SHARES, "f1"), known, of_others, plain, strict=True)
    rows = [*(of.row(*each) for each in each_of), of.row("f1_relation_mean", curved, UNDEFINED)]
    return pl.DataFrame(rows, schema=ESTIMATES, orient="row")


def _means(
    scores: pl.DataFrame, earlier: pl.DataFrame | None, of: Asked, *, by: By, seed: int
) -> tuple[Means | None, Means | None]:
    """The means of the scores, and where there is an earlier run those without it."""
    plain = means(scores.drop("pair_id"), of.sizes, by=by)
    if earlier is None:
        return plain, None
    return controlled_means(scores, earlier, of.sizes, by=by, seed=seed), plain


def _kamel(known: Means | None) -> tuple[Estimated, Estimated, Estimated]:
    if known is None:
        return (_mean(None, 0),) * 3
    precision, recall = known.values
    total = precision + recall
    # Where both are 0 the F1 grows as the two do, if they grow alike.
    f1, gradient = 0.0, np.full(2, 0.5)
    if total > 0:
        f1 = 2 * precision * recall / total
        gradient = 2 * np.array([recall, precision]) ** 2 / total**2
    return known.mean(0), known.mean(1), known.combined(float(f1), gradient)


def probelm_estimates(
    scores: pl.DataFrame,
    candidates: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    seed: int,
    n_rounds: int,
    control: Control | None = None,
) -> pl.DataFrame:
    """Estimate PRobELM's numbers: the table ESTIMATES after the column `setting` (a prompt type).

    `scores` and `candidates` are those of `operators.metrics.probelm`. Means over groups;
    plausibility, under the setting "all", where all three prompt types are there. A `control`
    narrows those of the prompt types that it has.
    """
    of = asked(scores, pairs)
    before = {} if control is None else group_tables(_everything(control, pairs), candidates)
    earlier = {setting: table for setting, table, _ in with_all_types(before)}
    rows = []
    for setting, table, names in with_all_types(group_tables(scores, candidates)):
        mine = table.select("relation_id", "pair_id", *names)
        both = _means(mine, earlier.get(setting), of, by="query", seed=seed)
        for column, name in enumerate(names):
            found, plain = (_mean(each, column) for each in both)
            terms = pair_terms(table, pl.sum(name), pl.len())
            others = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds).overall
            rows.append((setting, *of.row(name, found, others, plain)))
    schema = pl.Schema([("setting", pl.String()), *ESTIMATES.items()])
    return pl.DataFrame(rows, schema=schema, orient="row")


def _mean(known: Means | None, column: int) -> Estimated:
    return Estimated(None, None, None, MISSING) if known is None else known.mean(column)


def _everything(control: Control, pairs: pl.DataFrame) -> pl.DataFrame:
    """What a control has answered of all relations."""
    return pl.concat(control(str(each)) for each in pairs["relation_id"].unique().sort())
