"""Agreement with people: how alike a measure and people rank facts (Kendall's tau-b).

Source: "Factual Knowledge Assessment of Language Models Using Distractors", section 4.2: three-fold
cross-validation, the configuration with the highest tau on two folds is measured on the third. The
paper does not say which of Kendall's coefficients it takes; tau-b corrects for ties, of which these
scores are full, and is what scipy computes by default.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from factsweep.operators.metrics.distractors.distractors import of_facts
from factsweep.operators.metrics.shared.rows import Metric, Row, table
from factsweep.operators.schemas import SETTING, columns
from factsweep.operators.seeds import keys

N_FOLDS = 3
AGREEMENT = columns("agreement", *SETTING)


def tau_b(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b of two lists; None where one is constant, or has fewer than two numbers.

    >>> tau_b([1, 2, 3], [1, 2, 2]), tau_b([1, 1], [1, 2])
    (0.816496580927726, None)
    """
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    from scipy.stats import kendalltau

    return float(kendalltau(first, second, variant="b").statistic)


def folds(pair_ids: pl.Series, seed: int) -> pl.DataFrame:
    """The facts in N_FOLDS parts of equal size, drawn by the seed: pair_id, fold."""
    ids = pair_ids.unique().sort()
    place = np.argsort(np.argsort(keys(seed, "fold", ids), kind="stable"), kind="stable")
    return pl.DataFrame({"pair_id": ids, "fold": place % N_FOLDS}).cast({"fold": pl.Int64})


def agreement(clozes: pl.DataFrame, ratings: pl.DataFrame, *, seed: int) -> pl.DataFrame:
    """Kendall's tau-b with people in each fold, for each configuration and number of clozes.

    `clozes` has the columns `distractors.VALUES`, `ratings` has pair_id and rating. Columns:
    AGREEMENT. `tau` is that of the fold's facts, `tau_others` that of all others; facts without a
    value or a rating are in neither.

    >>> clozes = pl.DataFrame({
    ...     "pair_id": list("abcdef"), "cloze": 0, "measure": "probability",
    ...     "hyperparameters": "", "value": [.1, .2, .3, .4, .5, .6],
    ... })
    >>> people = clozes.select("pair_id", rating="value")
    >>> agreement(clozes, people, seed=0).select("n_clozes", "fold", "chosen", "tau", "n").rows()
    [(1, 0, True, 1.0, 2), (1, 1, True, 1.0, 2), (1, 2, True, 1.0, 2)]
    """
    defined = clozes.filter(pl.col("value").is_not_null() & pl.col("value").is_not_nan())
    rated = defined.join(ratings.drop_nulls("rating"), on="pair_id", maintain_order="left")
    if rated.is_empty():
        return AGREEMENT.to_frame()
    parted = rated.join(folds(rated["pair_id"], seed), on="pair_id", maintain_order="left")
    of_fact = parted.select("pair_id", "rating", "fold").unique("pair_id")
    taus = [
        _taus(of_facts(parted, n).join(of_fact, on="pair_id", maintain_order="left"), n)
        for n in range(1, 2 + int(parted["cloze"].to_numpy().max()))
    ]
    return _with_chosen(pl.concat(taus))


def agreement_rows(taus: pl.DataFrame) -> pl.DataFrame:
    """Of each measure `kendall_tau` and `kendall_tau_sd`, over the folds (table ROWS).

    Of `taus` (AGREEMENT) the chosen configurations over all clozes count. Null: some fold has no
    tau. The standard deviation divides by the number of folds; the paper does not say.

    Source: the paper, Table 3.
    """
    complete = taus.filter(pl.col("n_clozes") == pl.col("n_clozes").max(), "chosen")
    tau = pl.when(pl.col("tau").count() == N_FOLDS).then("tau")
    summary = complete.group_by("measure", maintain_order=True).agg(
        mean=tau.mean(), sd=tau.std(ddof=0), n=pl.sum("n")
    )
    rows = [
        _row(measure, metric, value, n)
        for measure, mean, sd, n in summary.iter_rows()
        for metric, value in ((KENDALL_TAU, mean), (KENDALL_TAU_SD, sd))
    ]
    return table(rows)


def robustness_rows(taus: pl.DataFrame) -> pl.DataFrame:
    """Of each measure `robustness`, the mean tau over its configurations (table ROWS).

    `taus` has the columns ROBUSTNESS. The paper takes the configurations that agree best with
    people; those are found on other facts, so here the whole grid counts.

    Source: the paper, Table 4.
    """
    means = taus.group_by("measure", maintain_order=True).agg(pl.mean("tau"), pl.max("n"))
    return table([_row(name, ROBUSTNESS_TAU, mean, n) for name, mean, n in means.iter_rows()])


def _row(measure: str, metric: Metric, value: float | None, n: int) -> Row:
    return Row(None, f"measure={measure}", metric.name, value, None, None, n, 0)


KENDALL_TAU = Metric("kendall_tau", heading="", better="higher", range=(-1, 1))
KENDALL_TAU_SD = Metric("kendall_tau_sd", heading="", better="lower", range=(0, 2))
ROBUSTNESS_TAU = Metric("robustness", heading="", better="higher", range=(-1, 1))
METRICS = (KENDALL_TAU, KENDALL_TAU_SD, ROBUSTNESS_TAU)


def _taus(rated: pl.DataFrame, n_clozes: int) -> pl.DataFrame:
    rows = []
    for names, facts in rated.group_by("measure", "hyperparameters", maintain_order=True):
        for fold in range(N_FOLDS):
            parts = facts.filter(pl.col("fold") != fold), facts.filter(fold=fold)
            taus = (tau_b(part["value"].to_list(), part["rating"].to_list()) for part in parts)
            rows.append((*names, n_clozes, fold, None, *taus, parts[1].height))
    return pl.DataFrame(rows, schema=AGREEMENT, orient="row")


def _with_chosen(taus: pl.DataFrame) -> pl.DataFrame:
    """Mark, in each fold, the configuration that is best on the others; of equals, the first."""
    by_fold = ["measure", "fold"]
    complete = taus.filter(pl.col("n_clozes") == pl.col("n_clozes").max())
    best = (
        complete.drop_nulls("tau_others")
        .with_row_index("place")
        # Rounded, so that no last digit of a float separates equal values.
        .sort(pl.col("tau_others").round(9), "place", descending=[True, False])
        .unique(by_fold, keep="first", maintain_order=True)
        .select(*by_fold, best="hyperparameters")
    )
    marked = taus.join(best, on=by_fold, how="left", maintain_order="left")
    chosen = (pl.col("hyperparameters") == pl.col("best")).fill_null(False)
    return marked.with_columns(chosen=chosen).select(AGREEMENT.names())


def robustness(clozes: pl.DataFrame) -> pl.DataFrame:
    """How alike facts rank in flawed and in corrected sentences, for each configuration.

    Columns in: `distractors.VALUES`, cloze 0 being the flawed sentence of a fact and 1 its
    correction. Columns out: ROBUSTNESS; `tau` is Kendall's tau-b over the `n` facts that have both.

    Source: the paper, section 4.3.
    """
    names_of, value = ["measure", "hyperparameters"], pl.col("value")
    wide = clozes.group_by(*names_of, "pair_id", maintain_order=True).agg(
        flawed=value.filter(cloze=0).mean(), corrected=value.filter(cloze=1).mean()
    )
    rows = [
        (*names, tau_b(facts["flawed"].to_list(), facts["corrected"].to_list()), facts.height)
        for names, facts in wide.drop_nulls().group_by(names_of, maintain_order=True)
    ]
    return pl.DataFrame(rows, schema=ROBUSTNESS, orient="row")


ROBUSTNESS = columns("robustness", *SETTING)
