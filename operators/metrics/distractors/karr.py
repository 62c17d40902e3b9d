"""KaRR: how many times likelier the right answer is behind its own clozes than by chance.

    P = mean over the fact's clozes c of the sum over the answer's labels of P(label | c)
    S, R = the same, of clozes of other subjects, and of other relations (operators.prompts.clozes)
    KaRR = sqrt( P / S · P / R ) = P / sqrt( S · R )

Source: Dong et al. 2023, "Statistical Knowledge Assessment for Large Language Models": the
geometric mean of two risk ratios; a fact is known above 22. The paper on distractors has no
formula. How we differ: docs/metrics.md.
"""

from math import inf

import polars as pl

from factsweep.operators.metrics.distractors.preference import VALUES, cloze_terms, values
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import ratio_rows, table

KNOWN_ABOVE = 22
_SAYS = f"share of facts whose answer is {KNOWN_ABOVE} times likelier than by chance, in percent"
KARR = Metric("karr", f"KaRR > {KNOWN_ABOVE}", _SAYS, "higher")
LOG_KARR = Metric("log_karr", better="higher", range=(-inf, inf))
METRICS = (KARR, LOG_KARR)


def of_karr(preferred: pl.DataFrame, by_chance: pl.DataFrame) -> pl.DataFrame:
    """P(c) / sqrt(S · R) of each cloze, whose mean over a fact's clozes is its KaRR (VALUES).

    `by_chance` has pair_id, `subjects` and `relations`: nats behind each such cloze. Null: there is
    no cloze of either kind. Without any row in it there are no values: none were asked for.

    >>> import math
    >>> preferred = pl.DataFrame({
    ...     "pair_id": ["t"], "relation_id": ["P36"], "template_id": ["P36.0"],
    ...     "subject_index": [0], "prompt_id": ["t.0.0"], "open_logprob": [math.log(0.8)],
    ... })
    >>> chance = pl.DataFrame({
    ...     "pair_id": ["t"], "subjects": [[math.log(0.3), math.log(0.1)]],
    ...     "relations": [[math.log(0.05)]],
    ... })
    >>> of_karr(preferred, chance)["value"].round(6).to_list()
    [8.0]
    """
    if by_chance.is_empty():
        return VALUES.to_frame()
    chance = by_chance.select(
        "pair_id", chance=(_log_mean("subjects") + _log_mean("relations")) / 2
    )
    rows = preferred.drop_nulls("open_logprob")
    rows = rows.join(chance, on="pair_id", how="left", maintain_order="left")
    return values(rows, "karr", "", (pl.col("open_logprob") - pl.col("chance")).exp())


def karr(clozes: pl.DataFrame, n_failed: pl.DataFrame, *, seed: int, n_rounds: int) -> pl.DataFrame:
    """`karr`, the share of facts that are known by it, and `log_karr`, the mean of ln KaRR (ROWS).

    `clozes` has what `of_karr` gives. A cloze without a value counts in `n_failed`. Slices: each
    relation.

    >>> clozes = pl.DataFrame({
    ...     "relation_id": ["P36"] * 3, "pair_id": ["t", "t", "u"], "value": [40.0, 10.0, 1.0]
    ... })
    >>> none = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})
    >>> rows = karr(clozes, none, seed=1, n_rounds=10).filter(pl.col("slice").is_null())
    >>> rows.select("metric", pl.col("value").round(3), "n").rows()
    [('karr', 0.5, 3), ('log_karr', 1.609, 3)]
    """
    mean, rows = pl.col("value").mean(), []
    for metric, of_fact in ((KARR, mean > KNOWN_ABOVE), (LOG_KARR, mean.log())):
        terms, counts = cloze_terms(clozes, n_failed, of_fact)
        rows += ratio_rows(metric.name, terms, counts, seed=seed, n_rounds=n_rounds)
    return table(rows)


def _log_mean(column: str) -> pl.Expr:
    """The logarithm of the mean of probabilities that are given as logarithms; null of none."""
    most = pl.element().max()
    return pl.col(column).list.eval(most + (pl.element() - most).exp().mean().log()).list.first()
