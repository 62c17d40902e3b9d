"""Estimates of the benchmarks whose numbers are means over queries: KAMEL's, and PRobELM's.

A query is a fact with one prompt (KAMEL), or a group with all its candidates (PRobELM): a part of
the prompts is a stratified sample of queries, with the relations as strata.

Source: Cochran 1977, chapter 5 (stratified random sampling, without replacement).
"""

from typing import Literal, NamedTuple, Unpack

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import FloatArray, IntArray, centre_by_group, group_means
from factsweep.operators.estimates.intervals import (
    IntervalEstimate,
    exact_estimate,
    half_width,
    unseen_variance,
    within_bounds,
)
from factsweep.operators.estimates.table import ESTIMATES, row
from factsweep.operators.metrics.answer_sets import precision_recall
from factsweep.operators.metrics.kamel import macros
from factsweep.operators.metrics.probelm import group_tables, with_all_types
from factsweep.operators.metrics.shared.bootstrap import UNDEFINED, Draws, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import pair_terms

MISSING = "no query of some relations was asked"
SINGLE = "no relation was asked two queries, so nothing says how far they differ"
CURVED = "the F1 of a relation is biased where few of its queries were asked"


class Means(NamedTuple):
    """Weighted means of several scores from 0 to 1, the covariance of their errors, its degrees.

    `covariance` is null where every relation has a single sampled query. `unseen` is the least
    variance of a mean, that of two further queries that score 1 in place of 0, or 0 in place of 1
    (Agresti and Coull 1998), so that equal scores have an interval, too.
    """

    values: FloatArray
    covariance: FloatArray | None
    degrees: int
    unseen: float

    def mean(self, column: int) -> IntervalEstimate:
        """The mean of one score, with its interval."""
        return self.apply_delta_method(float(self.values[column]), np.eye(len(self.values))[column])

    def apply_delta_method(self, value: float, gradient: FloatArray) -> IntervalEstimate:
        """A function of the means, from its value and derivatives there (the delta method)."""
        if self.covariance is None:
            return IntervalEstimate(value, None, None, SINGLE)
        variance = float(gradient @ self.covariance @ gradient)
        least = self.unseen * float(gradient @ gradient)
        return within_bounds(value, half_width(max(variance, least), self.degrees))


def means(
    scores: pl.DataFrame, sizes: pl.DataFrame, *, by: Literal["relation", "query"]
) -> Means | None:
    """Estimate means over queries from the scores of a sample; null: a relation has no score.

    `scores` has relation_id and a column for each score; `sizes` relation_id and n, the queries of
    the full run. Relations weigh alike (`by="relation"`) or as their queries (`by="query"`).
    """
    names = [name for name in scores.columns if name != "relation_id"]
    text = pl.col("relation_id").cast(pl.String)
    relations = sizes.with_columns(text).sort("relation_id").with_row_index("relation")
    rows = scores.with_columns(text).join(relations, on="relation_id", maintain_order="left")
    relation = rows["relation"].to_numpy().astype(np.int64)
    n_queries = relations["n"].to_numpy().astype(float)
    n_sampled = np.bincount(relation, minlength=len(n_queries))
    if not n_sampled.all():
        return None
    weights = np.full(len(n_queries), 1 / len(n_queries))
    if by == "query":
        weights = n_queries / n_queries.sum()
    columns = rows.select(pl.col(names).cast(pl.Float64)).to_numpy().T
    values = np.stack([group_means(relation, column) for column in columns]) @ weights
    deviations = np.stack([centre_by_group(relation, column) for column in columns], axis=1)
    least = unseen_variance(len(relation), max(0.0, 1 - len(relation) / n_queries.sum()))
    factor = weights**2 * np.maximum(0.0, 1 - n_sampled / n_queries) / n_sampled
    covariance = _covariance(deviations, relation, factor)
    return Means(values, covariance, int((n_sampled - 1).sum()), least)


def _covariance(
    deviations: FloatArray, relation: IntArray, factor: FloatArray
) -> FloatArray | None:
    """Σ factor · S over relations; one with a single query takes the S of all.

    `deviations` (queries × scores) are from the mean of the relation.
    """
    degrees = np.bincount(relation) - 1
    if factor.any() and not degrees.any():
        return None
    own_factor = np.where(degrees > 0, factor, 0.0) / np.maximum(1, degrees)
    common = factor[degrees == 0].sum() / max(1, degrees.sum())
    covariance: FloatArray = (deviations * (own_factor[relation] + common)[:, None]).T @ deviations
    return covariance


def _sizes(pairs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The queries of the full run by relation, and how many prompts it has (`Part.pairs`)."""
    n_prompts = pl.col("n_names") * pl.col("n_templates") - pl.col("n_failed")
    sizes = pairs.group_by("relation_id").agg(n=pl.len())
    return sizes, int(pairs.select(n_prompts.sum()).item())


def kamel_estimates(
    answers: pl.DataFrame, queries: pl.DataFrame, pairs: pl.DataFrame, **draws: Unpack[Draws]
) -> pl.DataFrame:
    """Estimate KAMEL's numbers, of strict matching with all labels: the table ESTIMATES.

    `answers` has pair_id and text, `queries` are all pairs of the split that is asked. Precision
    and recall are means of relations; F1 is the harmonic mean of the two, whose error follows from
    theirs (delta method).
    """
    sizes, n_full = _sizes(pairs)
    scores = precision_recall(answers, queries)
    relation_means = means(
        scores.select("relation_id", "precision", "recall"), sizes, by="relation"
    )
    (macro_scores,) = macros([scores], **draws)
    mean_f1 = macro_scores.f1_relation_mean.overall.value if answers.height == n_full else None
    curved = (
        IntervalEstimate(None, None, None, CURVED) if mean_f1 is None else exact_estimate(mean_f1)
    )
    rows = [
        row(metric, estimate, of_other_facts, n=answers.height, n_full=n_full, worth=None)
        for metric, estimate, of_other_facts in (
            ("precision", _mean(relation_means, 0), macro_scores.precision.overall),
            ("recall", _mean(relation_means, 1), macro_scores.recall.overall),
            ("f1", _f1(relation_means), macro_scores.f1.overall),
            ("f1_relation_mean", curved, UNDEFINED),
        )
    ]
    return pl.DataFrame(rows, schema=ESTIMATES, orient="row")


def _f1(shares: Means | None) -> IntervalEstimate:
    if shares is None:
        return _mean(None, 0)
    precision, recall = shares.values
    total = precision + recall
    # Where both are 0 the F1 grows as the two do, if they grow alike.
    f1, gradient = 0.0, np.full(2, 0.5)
    if total > 0:
        f1 = 2 * precision * recall / total
        gradient = 2 * np.array([recall, precision]) ** 2 / total**2
    return shares.apply_delta_method(float(f1), gradient)


def probelm_estimates(
    scores: pl.DataFrame, candidates: pl.DataFrame, pairs: pl.DataFrame, **draws: Unpack[Draws]
) -> pl.DataFrame:
    """Estimate PRobELM's numbers: the table ESTIMATES after the column `setting` (a prompt type).

    `scores` and `candidates` are those of `operators.metrics.probelm`. Means over groups;
    plausibility, under the setting "all", where all three prompt types were asked.
    """
    sizes, n_full = _sizes(pairs)
    rows = []
    for setting, table, names in with_all_types(group_tables(scores, candidates)):
        setting_means = means(table.select("relation_id", *names), sizes, by="query")
        for column, name in enumerate(names):
            terms = pair_terms(table, pl.sum(name), pl.len())
            of_other_facts = bootstrap_ratio(terms, **draws).overall
            estimate, n = _mean(setting_means, column), scores.height
            cells = row(name, estimate, of_other_facts, n=n, n_full=n_full, worth=None)
            rows.append((setting, *cells))
    schema = pl.Schema([("setting", pl.String()), *ESTIMATES.items()])
    return pl.DataFrame(rows, schema=schema, orient="row")


def _mean(estimate: Means | None, column: int) -> IntervalEstimate:
    return (
        IntervalEstimate(None, None, None, MISSING) if estimate is None else estimate.mean(column)
    )
