"""Estimates of the benchmarks whose numbers are means over queries: KAMEL's, and PRobELM's.

A query is a fact with one prompt (KAMEL), or a group with all its candidates (PRobELM): a part of
the prompts is a stratified sample of queries (`stratified.py`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from operators.metrics.estimates.bootstrap import UNDEFINED, Estimate, bootstrap_ratio
from operators.metrics.estimates.terms import pair_terms
from operators.metrics.kamel.macro import macro
from operators.metrics.kamel.precision_recall import precision_recall
from operators.metrics.probelm.probelm import ALL_TYPES, PLAUSIBILITY, plausibility
from operators.metrics.probelm.ranking import RANKING_METRICS, costs, group_scores
from operators.metrics.sampled.crossed import Estimated, exactly
from operators.metrics.sampled.stratified import MISSING, Means, means
from operators.metrics.sampled.table import ESTIMATES
from operators.prompts.plausibility import PROMPT_TYPES

CURVED = "the F1 of a relation is biased where few of its queries were asked"


class Asked(NamedTuple):
    """What of the full run was asked: its queries by relation, and how many prompts of how many."""

    sizes: pl.DataFrame
    n: int
    n_full: int

    @property
    def is_all(self) -> bool:
        """Whether all prompts were asked and answered."""
        return self.n == self.n_full

    def row(self, metric: str, found: Estimated, others: Estimate) -> tuple[object, ...]:
        """A row of the schema ESTIMATES."""
        return metric, *found[:3], *others[1:], self.n / self.n_full, self.n, found.why, None


def asked(answers: pl.DataFrame, pairs: pl.DataFrame) -> Asked:
    """Count the answers to a part; `pairs` says what the full run asks (table `crossed`)."""
    n_prompts = pairs.select(pl.col("n_names") * pl.col("n_templates")).to_series()
    sizes = pairs.group_by("relation_id").agg(n=pl.len())
    return Asked(sizes, answers.height, int(n_prompts.sum()))


def kamel_estimates(
    answers: pl.DataFrame, queries: pl.DataFrame, pairs: pl.DataFrame, *, seed: int, n_rounds: int
) -> pl.DataFrame:
    """Estimate KAMEL's numbers, of strict matching with all labels: the table ESTIMATES.

    `answers` has pair_id and text, `queries` are all pairs of the split that is asked. Precision
    and recall are means of relations; F1 is the harmonic mean of the two, whose error follows from
    theirs (delta method).
    """
    of = asked(answers, pairs)
    scores = precision_recall(answers, queries)
    known = means(scores.select("relation_id", "precision", "recall"), of.sizes, by="relation")
    others = macro(scores, seed=seed, n_rounds=n_rounds)
    whole = others.f1_relation_mean.overall.value if of.is_all else None
    curved = Estimated(None, None, None, CURVED) if whole is None else exactly(whole)
    precision, recall, f1 = _kamel(known)
    rows = [
        of.row("precision", precision, others.precision.overall),
        of.row("recall", recall, others.recall.overall),
        of.row("f1", f1, others.f1.overall),
        of.row("f1_relation_mean", curved, UNDEFINED),
    ]
    return pl.DataFrame(rows, schema=ESTIMATES, orient="row")


def _kamel(known: Means | None) -> tuple[Estimated, Estimated, Estimated]:
    if known is None:
        missing = Estimated(None, None, None, MISSING)
        return missing, missing, missing
    precision, recall = known.values
    total = precision + recall
    f1 = 2 * precision * recall / total if total > 0 else 0.0
    gradient = 2 * np.array([recall, precision]) ** 2 / total**2 if total > 0 else np.zeros(2)
    return known.mean(0), known.mean(1), known.combined(float(f1), gradient)


def probelm_estimates(
    scores: pl.DataFrame,
    candidates: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    seed: int,
    n_rounds: int,
) -> pl.DataFrame:
    """Estimate PRobELM's numbers: the table ESTIMATES after the column `setting` (a prompt type).

    `scores` and `candidates` are those of `operators.metrics.probelm.probelm`. Means over groups;
    plausibility, under the setting "all", where all three prompt types are there.
    """
    of = asked(scores, pairs)
    rows = []
    for setting, table, names in _of_settings(scores, candidates):
        known = means(table.select("relation_id", *names), of.sizes, by="query")
        for column, name in enumerate(names):
            found = Estimated(None, None, None, MISSING) if known is None else known.mean(column)
            terms = pair_terms(table, pl.sum(name), pl.len())
            others = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds).overall
            rows.append((setting, *of.row(name, found, others)))
    schema = pl.Schema([("setting", pl.String()), *ESTIMATES.items()])
    return pl.DataFrame(rows, schema=schema, orient="row")


def _of_settings(
    scores: pl.DataFrame, candidates: pl.DataFrame
) -> Iterator[tuple[str, pl.DataFrame, tuple[str, ...]]]:
    """Each prompt type with its groups' scores, and their names; then all types together."""
    tables = {}
    for setting in PROMPT_TYPES:
        mine = scores.filter(setting=setting)
        if mine.height:
            tables[setting] = group_scores(candidates, costs(mine, "text_perplexity"))
            yield setting, tables[setting], RANKING_METRICS
    if len(tables) == len(PROMPT_TYPES):
        yield ALL_TYPES, plausibility(list(tables.values())), tuple(PLAUSIBILITY)
