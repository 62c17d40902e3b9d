"""Template spread: how far the accuracy of a relation's templates lies apart."""

import polars as pl
from polars import selectors

from factsweep.operators.metrics.shared.rows import counted, plain_rows, table

_TEMPLATE = ("relation_id", "template_id")


def template_accuracy(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each template its Acc@1 (0 to 1): the mean over pairs of the mean over their names.

    Needs the columns relation_id, template_id, pair_id and correct. The result has relation_id,
    template_id, accuracy, n_pairs (with an answer under it) and n (answers); sorted by the ids.

    Source: BELIEF, appendix C.2. The paper does not say how names weigh; here pairs count alike.

    >>> template_accuracy(pl.DataFrame({
    ...     "relation_id": ["P1"] * 3, "template_id": ["a", "a", "b"], "pair_id": ["t", "t", "t"],
    ...     "correct": [True, False, True],
    ... })).rows()
    [('P1', 'a', 0.5, 1, 2), ('P1', 'b', 1.0, 1, 1)]
    """
    ids = pl.col(*_TEMPLATE, "pair_id")
    coded = answers.select(ids, "correct").with_columns(selectors.string().cast(pl.Categorical))
    cells = coded.group_by(ids).agg(n_correct=pl.sum("correct"), n_names=pl.len())
    # Whole numbers first: sums of shares would depend on the order of the rows.
    sizes = cells.group_by(*_TEMPLATE, "n_names").agg(pl.sum("n_correct"), n_pairs=pl.len())
    shares = (pl.col("n_correct") / pl.col("n_names")).sum() / pl.sum("n_pairs")
    n = (pl.col("n_names") * pl.col("n_pairs")).sum().cast(pl.Int64)
    templates = sizes.sort("n_names").group_by(_TEMPLATE, maintain_order=True)
    return (
        templates.agg(accuracy=shares, n_pairs=pl.sum("n_pairs").cast(pl.Int64), n=n)
        .with_columns(pl.col(_TEMPLATE).cast(pl.String))
        .sort(_TEMPLATE)
    )


def template_spread(answers: pl.DataFrame, n_failed: pl.DataFrame | None = None) -> pl.DataFrame:
    """Give min, mean and max over templates of their accuracy, as rows of the table ROWS.

    Metrics `template_spread_min`, `_mean` and `_max`: a relation's own, and micro-averaged over
    relations, each weighted by its pairs that have any answer. The templates of the minimum and
    the maximum are chosen on the answers that they are then measured on. `n_failed` as in `belief`.

    Source: BELIEF, appendix C.2, Table 11 (2025: Table 12).

    >>> answers = pl.DataFrame({
    ...     "relation_id": ["P1"] * 4, "template_id": ["a", "a", "b", "b"],
    ...     "pair_id": ["t1", "t2", "t1", "t2"], "correct": [True, True, True, False],
    ... })
    >>> overall = template_spread(answers).filter(pl.col("slice").is_null())
    >>> overall.select("metric", "value").rows()
    [('template_spread_min', 0.5), ('template_spread_mean', 0.75), ('template_spread_max', 1.0)]
    """
    counts = counted(answers, n_failed)
    spread = spread_sums(answers)
    rows = []
    for name in ("min", "mean", "max"):
        sums = spread.select("relation_id", numerator=name, denominator="n_pairs")
        rows += plain_rows(f"template_spread_{name}", sums, counts)
    return table(rows)


def spread_sums(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each relation min, mean and max over templates, each times n_pairs, and n_pairs."""
    pairs = answers.group_by(pl.col("relation_id").cast(pl.String)).agg(
        n_pairs=pl.col("pair_id").n_unique().cast(pl.Int64)
    )
    accuracy = pl.col("accuracy")
    templates = template_accuracy(answers).group_by("relation_id")
    spread = templates.agg(min=accuracy.min(), mean=accuracy.mean(), max=accuracy.max())
    weighted = pl.col("min", "mean", "max") * pl.col("n_pairs")
    return spread.join(pairs, on="relation_id").with_columns(weighted).sort("relation_id")
