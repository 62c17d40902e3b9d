"""Bias level: how strongly a template, without a subject, prefers some objects to others."""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import Counts, Row, counted, plain_rows, table

MULTI = "prompts=multi"


def bias_level(content_free: pl.DataFrame, n_failed: pl.DataFrame | None = None) -> pl.DataFrame:
    """Give 1 − H/H_max (0 to 1; 0 prefers nothing), as rows of the table ROWS.

    `content_free` has one row per content-free prompt: relation_id, template_id, and probabilities,
    those of the relation's candidates in one order for the whole relation. A prompt's probabilities
    are renormalised, and a template's are the mean over its prompts ("N/A", "" and "?").

    - `bias_level`, variant null: single-prompt, the mean over templates of each one's bias level.
    - `bias_level`, variant `prompts=multi`: the bias level of the distribution that is averaged
      over the relation's templates; over all, the mean over relations.

    `n` counts content-free prompts, `n_failed` (relation_id, n_failed) those without a prediction.
    A relation with fewer than two candidates has none and is left out, and so is a prompt under
    which all candidates have probability 0.

    Source: BELIEF, section 5.4. In which order to average and to renormalise is not said there.

    >>> content_free = pl.DataFrame({
    ...     "relation_id": ["P1", "P1"], "template_id": ["a", "b"],
    ...     "probabilities": [[0.2, 0.0], [0.0, 0.1]],
    ... })
    >>> rows = bias_level(content_free).filter(pl.col("slice").is_null())
    >>> rows.select("metric", "variant", "value", "n").rows()
    [('bias_level', None, 1.0, 2), ('bias_level', 'prompts=multi', 0.0, 2)]
    """
    counts = counted(content_free, n_failed)
    templates = _mean_distributions(content_free)
    relations = _mean(templates, ["relation_id"])
    return table([*_rows(templates, counts, None), *_rows(relations, counts, MULTI)])


def template_bias_level(content_free: pl.DataFrame) -> pl.DataFrame:
    """Give each template its bias level: relation_id, template_id, bias_level; sorted by the ids.

    `content_free` as in `bias_level`.

    >>> template_bias_level(pl.DataFrame({
    ...     "relation_id": ["P1"], "template_id": ["a"], "probabilities": [[0.1, 0.1]],
    ... })).rows()
    [('P1', 'a', 0.0)]
    """
    ids = ["relation_id", "template_id"]
    return _levels(_mean_distributions(content_free), ids).sort(ids)


def _rows(distributions: pl.DataFrame, counts: Counts, variant: str | None) -> list[Row]:
    ids = [name for name in distributions.columns if name.endswith("_id")]
    levels = _levels(distributions, ids).drop_nulls("bias_level").sort(ids)
    sums = levels.select("relation_id", numerator="bias_level", denominator=pl.lit(1.0))
    return plain_rows("bias_level", sums, counts, variant)


def _mean_distributions(content_free: pl.DataFrame) -> pl.DataFrame:
    """Each template's distribution: relation_id, template_id, place (of the candidate), p."""
    share = pl.element() / pl.element().sum()
    asked = content_free.filter(pl.col("probabilities").list.sum() > 0)
    prompts = asked.select(
        pl.col("relation_id", "template_id").cast(pl.String),
        place=pl.int_ranges(pl.col("probabilities").list.len()),
        p=pl.col("probabilities").cast(pl.List(pl.Float64)).list.eval(share),
    )
    return _mean(prompts.explode("place", "p"), ["relation_id", "template_id"])


def _mean(distributions: pl.DataFrame, ids: list[str]) -> pl.DataFrame:
    """Average the distributions over all but the ids."""
    return distributions.group_by(*ids, "place").agg(pl.mean("p")).sort(*ids, "place")


def _levels(distributions: pl.DataFrame, ids: list[str]) -> pl.DataFrame:
    """The bias level of each distribution; null for one of a single candidate."""
    p = pl.col("p")
    entropy = -pl.when(p > 0).then(p * p.log()).otherwise(0.0).sum()
    level = pl.when(pl.len() > 1).then(1 - entropy / pl.len().log())
    return distributions.group_by(ids, maintain_order=True).agg(bias_level=level)


BIAS_LEVEL = Metric(
    "bias_level",
    heading="bias level",
    says="how uneven the answers to prompts without a subject are",
)
