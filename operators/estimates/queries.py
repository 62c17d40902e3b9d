"""Estimates of the benchmarks whose numbers are means over queries: KAMEL's, and PRobELM's.

A query is a fact with one prompt (KAMEL), or a group with all its candidates (PRobELM): a part of
the prompts is a stratified sample of queries, some of each relation's.

Source: Cochran 1977, chapter 5 (stratified random sampling, without replacement).
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.control import N_FOLDS, foreseen
from factsweep.operators.estimates.crossed import FloatArray, IntArray, centred, group_means
from factsweep.operators.estimates.intervals import (
    Estimated,
    exactly,
    half_width,
    unseen,
    within_bounds,
)
from factsweep.operators.estimates.table import ESTIMATES, row
from factsweep.operators.metrics.kamel import macro, precision_recall
from factsweep.operators.metrics.probelm import group_tables, with_all_types
from factsweep.operators.metrics.shared.bootstrap import UNDEFINED, Estimate, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import pair_terms
from factsweep.operators.seeds import generator

By = Literal["relation", "query"]

MISSING = "no query of some relations was asked"
SINGLE = "no relation was asked two queries, so nothing says how far they differ"


class Means(NamedTuple):
    """Weighted means of several scores from 0 to 1, the covariance of their errors, its degrees.

    `covariance` is null where no relation has two queries that were asked. `unseen` is the least
    variance that is believed: that of two further queries that score 1 in place of 0, or 0 in place
    of 1 (Agresti and Coull 1998), so that scores that are all alike have an interval, too.
    """

    values: FloatArray
    covariance: FloatArray | None
    degrees: int
    unseen: float

    def mean(self, column: int) -> Estimated:
        """The mean of one score, with its interval."""
        return self.combined(float(self.values[column]), np.eye(len(self.values))[column])

    def combined(self, value: float, gradient: FloatArray) -> Estimated:
        """A function of the means, from its value and derivatives there (the delta method)."""
        if self.covariance is None:
            return Estimated(value, None, None, SINGLE)
        variance = float(gradient @ self.covariance @ gradient)
        least = self.unseen * float(gradient @ gradient)
        return within_bounds(value, half_width(max(variance, least), self.degrees))


def means(scores: pl.DataFrame, sizes: pl.DataFrame, *, by: By) -> Means | None:
    """Estimate means over queries from the scores of those that were asked.

    `scores` has relation_id and a column for each score; `sizes` relation_id and n, the queries of
    the full run. Relations weigh alike (`by="relation"`) or as their queries (`by="query"`). Null
    where a relation has no score.
    """
    names = [name for name in scores.columns if name != "relation_id"]
    text = pl.col("relation_id").cast(pl.String)
    known = sizes.with_columns(text).sort("relation_id").with_row_index("relation")
    rows = scores.with_columns(text).join(known, on="relation_id", maintain_order="left")
    relation, n = rows["relation"].to_numpy().astype(np.int64), known["n"].to_numpy().astype(float)
    asked = np.bincount(relation, minlength=len(n))
    if not asked.all():
        return None
    weights = n / n.sum() if by == "query" else np.full(len(n), 1 / len(n))
    columns = rows.select(pl.col(names).cast(pl.Float64)).to_numpy().T
    values = np.stack([group_means(relation, each) for each in columns]) @ weights
    off = np.stack([centred(relation, each) for each in columns], axis=1)
    least = unseen(len(relation), max(0.0, 1 - len(relation) / n.sum()))
    factor = weights**2 * np.maximum(0.0, 1 - asked / n) / asked
    return Means(values, _covariance(off, relation, factor), int((asked - 1).sum()), least)


def _covariance(off: FloatArray, relation: IntArray, factor: FloatArray) -> FloatArray | None:
    """Σ factor · S over relations; one with a single query takes the S of all.

    `off` are the scores (queries × scores) less the means of their relation.
    """
    degrees = np.bincount(relation) - 1
    if factor.any() and not degrees.any():
        return None
    own = np.where(degrees > 0, factor, 0.0) / np.maximum(1, degrees)
    common = factor[degrees == 0].sum() / max(1, degrees.sum())
    found: FloatArray = (off * (own[relation] + common)[:, None]).T @ off
    return found


def controlled_means(
    scores: pl.DataFrame, earlier: pl.DataFrame, sizes: pl.DataFrame, *, by: By, seed: int
) -> Means | None:
    """`means` of what is left of the scores, as `less_foreseen` has it.

    The score y of a query becomes y − b (x − X): x is what the earlier run scored there, X its mean
    over all queries of the relation: the regression estimator (Cochran 1977, chapter 7; Särndal,
    Swensson and Wretman 1992, section 6.3). The coefficient b is fitted and shrunk as in
    `control.py`, and two further queries whose answer changed are in the variance as there.
    """
    names = [name for name in scores.columns if name not in ("relation_id", "pair_id")]
    left = less_foreseen(scores, earlier, names, seed=seed)
    found = means(left.drop("pair_id"), sizes, by=by)
    if found is None or found.covariance is None:
        return found
    return found._replace(covariance=found.covariance + found.unseen * np.eye(len(names)))


def less_foreseen(
    scores: pl.DataFrame, earlier: pl.DataFrame, names: Sequence[str], *, seed: int
) -> pl.DataFrame:
    """The scores of asked queries, less what an earlier run's say of them.

    Both have relation_id, pair_id and a column for each of `names`: `scores` a row for each query
    that was asked, `earlier` one for each that the earlier run answered. A query that it has not
    answered keeps its score.

    >>> queries = {"relation_id": ["P1"] * 12, "pair_id": [f"q{n:02}" for n in range(12)]}
    >>> earlier = pl.DataFrame({**queries, "f": [0.0, 0.5, 1.0] * 4})
    >>> asked = earlier[:8].with_columns(f=pl.col("f") / 2 + 0.25)
    >>> less_foreseen(asked, earlier, ["f"], seed=1)["f"].round(6).unique().to_list()
    [0.5]
    """
    ids = pl.col("relation_id", "pair_id").cast(pl.String)
    fold = generator(seed, "folds").permutation(earlier.height) % N_FOLDS
    known = earlier.select(ids, *names).sort("relation_id", "pair_id")
    stratum = known["relation_id"].rank("dense").to_numpy().astype(np.int64) - 1
    places, on = known.select(ids).with_row_index("place"), ["relation_id", "pair_id"]
    place = scores.select(ids).join(places, on=on, how="left", maintain_order="left")["place"]
    there, asked = place.is_not_null(), place.drop_nulls().to_numpy().astype(np.int64)
    less = {}
    for name in names:
        y, x = (each[name].cast(pl.Float64).to_numpy() for each in (scores.filter(there), known))
        more = foreseen(y, x, asked, stratum, fold)
        foretold = np.zeros(scores.height)
        foretold[there.to_numpy()] = centred(stratum, more)[asked]
        less[name] = pl.col(name) - pl.Series(foretold)
    return scores.with_columns(ids).with_columns(**less)


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
