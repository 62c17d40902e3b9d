"""Coverage: how many pairs a model knows under its best template, or under any prompt."""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import pair_terms

_TEMPLATE = ("relation_id", "template_id")


def coverage_oracle_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair a 1 if any of its answers is correct, over 1.

    Needs the columns relation_id, pair_id and correct. A pair without any answer is left out.

    Source: BELIEF, section 7, Table 7, "Oracle".

    >>> ids = {"relation_id": ["P1"] * 4, "pair_id": ["t1", "t1", "t2", "t2"]}
    >>> answers = pl.DataFrame({**ids, "correct": [True, False, False, False]})
    >>> coverage_oracle_terms(answers)["numerator"].to_list()
    [1.0, 0.0]
    """
    return pair_terms(answers, pl.col("correct").any(), pl.lit(1.0))


def coverage_maximum_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair a 1 if it is known under its relation's best template, over 1.

    The best template of a relation is the one with the most correct pairs, and of several the first
    by its id; a pair is correct under a template if any of its subject names is answered correctly.
    Every round of a bootstrap keeps the templates that are best in the sample: were they chosen
    again in each, they would owe part of their lead to the chance of that round, and the interval
    would lie high, even above the value.

    Source: BELIEF, section 7, Table 7, "Maximum", with footnote 16 (the best subject name).

    >>> pairs = {"relation_id": ["P1"] * 4, "pair_id": ["t1", "t1", "t2", "t3"]}
    >>> hits = {"template_id": ["a", "b", "b", "a"], "correct": [True, True, True, False]}
    >>> coverage_maximum_terms(pl.DataFrame(pairs | hits))["numerator"].to_list()
    [1.0, 1.0, 0.0]
    """
    n_right = pl.col("pair_id").filter("correct").n_unique()
    relation, template = (pl.col(each).cast(pl.String) for each in _TEMPLATE)
    templates = answers.group_by(_TEMPLATE).agg(n_right=n_right)
    ranked = templates.sort(relation, "n_right", template, descending=[False, True, False])
    best = ranked.unique("relation_id", keep="first", maintain_order=True)
    rows = answers.join(best, on=_TEMPLATE, how="left")
    right = pl.col("correct") & pl.col("n_right").is_not_null()
    return pair_terms(rows, right.any(), pl.lit(1.0))


_UNDER_BEST = "share of facts right under their relation's best template"
_UNDER_ANY = "share of facts right under at least one prompt"
COVERAGE_MAXIMUM = Metric("coverage_maximum", "maximum", _UNDER_BEST, "higher")
COVERAGE_ORACLE = Metric(
    "coverage_oracle", "oracle", _UNDER_ANY, "higher", terms=coverage_oracle_terms
)
