"""KAMEL's errors of dates, in years: their means and medians.

Source: KAMEL, section 4.2, "Detailed Analysis", which does not say how a year is read.
"""

from math import inf

import numpy as np
import polars as pl

from factsweep.operators.datasets.kamel import DATE
from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.metrics.shared.rows import (
    Metric,
    Row,
    count_scored_pairs,
    pair_terms,
    ratio_rows,
)

YEAR_ERROR_MEAN = Metric("year_error_mean", heading="", better="lower", range=(0, inf))
YEAR_ERROR_MEDIAN = Metric("year_error_median", heading="", better="lower", range=(0, inf))
_FIRST_ANSWER = r"^[;\s]*([^;%\r\n]*)"  # an answer that is empty is none
# Three or four digits anywhere; fewer only where nothing else is said ("44 BC", not "16 May").
_YEAR = r"(?:^|[^0-9])([0-9]{3,4})(?:[^0-9]|$)"
_EARLY_YEAR = r"^(?:AD *|-)?([0-9]{1,2})(?: *(?:AD|B?\.?C\.?E?\.?))?\.?$"
_BEFORE_CHRIST = r"^-|[0-9] *(?:BC|BCE|B\.C\.)"


def year_rows(answers: pl.DataFrame, queries: pl.DataFrame, seed: int, n_rounds: int) -> list[Row]:
    """The error in years; `n_failed` counts the answers without a year too."""
    dates = queries.filter(
        pl.col("objects").list.eval(pl.element().struct.field("object_id") == DATE).list.any()
    )
    if dates.is_empty():
        return []
    errors = year_errors(answers, dates)
    counts, terms = (count_scored_pairs(dates, errors), pair_terms(errors, pl.mean("error")))
    return [
        *ratio_rows(YEAR_ERROR_MEAN.name, terms, counts, seed=seed, n_rounds=n_rounds),
        *counts.rows(YEAR_ERROR_MEDIAN.name, _medians(terms, seed, n_rounds)),
    ]


def year_errors(answers: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The error of each query for a date: relation_id, pair_id, error (years).

    Of several right years the nearest counts. Queries whose answer has no year are left out.

    >>> objects = [{"object_id": "XMLSchema#dateTime", "labels": ["1949", "16 December 1949"]}]
    >>> pairs = pl.DataFrame({"relation_id": ["P569"], "pair_id": ["t1"], "objects": [objects]})
    >>> year_errors(pl.DataFrame({"pair_id": ["t1"], "text": [" 1951%"]}), pairs)["error"].item()
    2.0
    """
    dates = pairs.select("relation_id", "pair_id", "objects").explode("objects")
    dates = dates.unnest("objects").filter(pl.col("object_id") == DATE)
    gold = dates.select("relation_id", "pair_id", gold=year(pl.col("labels").list.first()))
    years = answers.drop_nulls("text").select("pair_id", year=year(pl.col("text")))
    errors = gold.drop_nulls("gold").join(years, on="pair_id").group_by("relation_id", "pair_id")
    error = (pl.col("year") - pl.col("gold")).abs().min().cast(pl.Float64)
    return errors.agg(error=error).drop_nulls("error").sort("relation_id", "pair_id")


def year(text: pl.Expr) -> pl.Expr:
    """The first answer's year as a number, negative before Christ; null where it names none.

    >>> texts = ["1949; 1950%", "16 December 1949", "1,949", "44 BC", "16 May", "in spring"]
    >>> pl.DataFrame({"text": texts}).select(year(pl.col("text")))["text"].to_list()
    [1949, 1949, 1949, -44, None, None]
    """
    first = text.str.extract(_FIRST_ANSWER).str.strip_chars().str.to_uppercase()
    first = first.str.replace_all(r"\b([0-9]),([0-9]{3})\b", "$1$2")
    digits = pl.coalesce(first.str.extract(_YEAR), first.str.extract(_EARLY_YEAR))
    number = digits.cast(pl.Int64)
    return pl.when(first.str.contains(_BEFORE_CHRIST)).then(-number).otherwise(number)


def _medians(terms: pl.DataFrame, seed: int, n_rounds: int) -> bootstrap.BootstrapResult:
    """The median of `terms.numerator` in each round, over all and of each relation."""
    if terms.is_empty():
        return bootstrap.BootstrapResult(bootstrap.UNDEFINED, {})
    weights = bootstrap.relation_weights(terms, seed, n_rounds)
    by_relation = {
        relation: bootstrap.estimate(
            weighted_medians(rows["numerator"].to_numpy(), weights[relation])
        )
        for relation, rows in bootstrap.relations(terms, "pair_id")
    }
    all_weights = np.hstack(list(weights.values()))
    overall = weighted_medians(terms["numerator"].to_numpy(), all_weights)
    return bootstrap.BootstrapResult(bootstrap.estimate(overall), by_relation)


def weighted_medians(
    values: bootstrap.FloatArray, weights: bootstrap.IntArray
) -> bootstrap.FloatArray:
    """The median of the values for each row of `weights`: how often each value is taken.

    >>> weighted_medians(np.array([5.0, 1.0, 2.0]), np.array([[1, 1, 1], [2, 2, 0]])).tolist()
    [2.0, 3.0]
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[:, order], axis=1)
    total = reached[:, -1:]
    lower, upper = (
        values[order][(reached >= place).argmax(axis=1)]
        for place in ((total + 1) // 2, total // 2 + 1)
    )
    return np.asarray((lower + upper) / 2)
