"""Extended entities: whether another name suits a masked model better than the label does."""

import polars as pl

from operators.metrics.rows import counted, ratio_rows, table
from operators.metrics.terms import pair_terms

EACH = "unit=alias"
_FACT = ("relation_id", "pair_id", "template_id", "object_id")


def extended_entities(
    label_probabilities: pl.DataFrame, *, seed: int, n_rounds: int = 1000
) -> pl.DataFrame:
    """Give how often an alias beats the label, as rows of the table BELIEF.

    - `extended_subject`: of the facts under a template whose subject has aliases, the share in
      which some alias gets the object's label a higher probability than the subject's label does.
    - `extended_object`: of the facts under a prompt whose object has aliases, the share in which
      some alias of the object gets a higher probability than the object's label does.

    With variant `unit=alias`, every alias counts by itself. `label_probabilities` has a row for
    each prompt and each label of a right object that is a single token: relation_id, pair_id,
    template_id, subject_index, object_id, label_index (0: the label; others: aliases) and
    probability. Where the original (index 0) is missing, there is nothing to compare with. A tie is
    no gain. `n` counts the rows of the table.

    Source: BELIEF, appendix C.1, Table 10 (2025: Table 11).

    >>> rows = pl.DataFrame({
    ...     "relation_id": ["P1"] * 4, "pair_id": ["t"] * 4, "template_id": ["a"] * 4,
    ...     "subject_index": [0, 0, 1, 1], "object_id": ["Q1"] * 4, "label_index": [0, 1, 0, 1],
    ...     "probability": [0.25, 0.5, 0.125, 0.0],
    ... })
    >>> found = extended_entities(rows, seed=1, n_rounds=10).filter(pl.col("slice").is_null())
    >>> found.filter(pl.col("variant").is_null()).select("metric", "value").rows()
    [('extended_subject', 0.0), ('extended_object', 0.5)]
    """
    counts = counted(label_probabilities)
    compared = {
        "extended_subject": _gains(
            label_probabilities.filter(pl.col("label_index") == 0), "subject_index", _FACT
        ),
        "extended_object": _gains(label_probabilities, "label_index", (*_FACT, "subject_index")),
    }
    found = []
    for metric, units in compared.items():
        some = pair_terms(units, pl.col("n_gains").gt(0).sum(), pl.len())
        each = pair_terms(units, pl.sum("n_gains"), pl.sum("n_aliases"))
        for terms, variant in ((some, None), (each, EACH)):
            rows = ratio_rows(metric, terms, counts, seed=seed, n_rounds=n_rounds)
            found += [row._replace(variant=variant) for row in rows]
    return table(found)


def _gains(rows: pl.DataFrame, index: str, unit: tuple[str, ...]) -> pl.DataFrame:
    """For each unit with an original and aliases: n_aliases, and n_gains, those above it."""
    original = pl.col("probability").filter(pl.col(index) == 0).first()
    aliases = pl.col("probability").filter(pl.col(index) > 0)
    units = rows.group_by(unit).agg(
        original=original, n_aliases=aliases.len(), n_gains=(aliases > original).sum()
    )
    return units.filter(pl.col("original").is_not_null(), pl.col("n_aliases") > 0)
