"""Extended entities: whether another name suits a masked model better than the label does."""

import polars as pl

from factsweep.operators.metrics.shared.rows import Counts, ratio_rows, table
from factsweep.operators.metrics.shared.terms import pair_terms

EACH = "unit=alias"
_UNITS = {None: ("n_gaining", "n_units"), EACH: ("n_gains", "n_aliases")}
_FACT = ("relation_id", "pair_id", "template_id", "object_id")


def gains(label_probabilities: pl.DataFrame) -> pl.DataFrame:
    """Count for each pair how often an alias beats the label: one row per pair and metric.

    `label_probabilities` has a row for each prompt and each label of a right object that is a
    single token: relation_id, pair_id, template_id, subject_index, object_id, label_index (0: the
    label; others: aliases) and probability. It may be a part of the pairs. Columns: relation_id,
    pair_id, metric, n_units (facts that have aliases), n_gaining (units where some alias gains),
    n_aliases and n_gains. Where the original (index 0) is missing, there is nothing to compare
    with. A tie is no gain.

    >>> rows = pl.DataFrame({
    ...     "relation_id": ["P36"] * 3, "pair_id": ["t"] * 3, "template_id": ["a"] * 3,
    ...     "object_id": ["Q90"] * 3, "subject_index": [0, 0, 1], "label_index": [0, 1, 0],
    ...     "probability": [0.25, 0.5, 0.125],
    ... })
    >>> gains(rows).select("metric", "n_units", "n_gaining").rows()
    [('extended_subject', 1, 0), ('extended_object', 1, 1)]
    """
    compared = {
        "extended_subject": _gains(
            label_probabilities.filter(pl.col("label_index") == 0), "subject_index", _FACT
        ),
        "extended_object": _gains(label_probabilities, "label_index", (*_FACT, "subject_index")),
    }
    counts = [
        units.group_by("relation_id", "pair_id", maintain_order=True).agg(
            pl.lit(metric).alias("metric"),
            pl.len().cast(pl.Int64).alias("n_units"),
            pl.col("n_gains").gt(0).sum().cast(pl.Int64).alias("n_gaining"),
            pl.col("n_aliases", "n_gains").sum().cast(pl.Int64),
        )
        for metric, units in compared.items()
    ]
    return pl.concat(counts)


def extended_entities(gains: pl.DataFrame, *, seed: int, n_rounds: int = 1000) -> pl.DataFrame:
    """Give how often an alias beats the label, as rows of the table ROWS; from `gains`.

    - `extended_subject`: of the facts under a template whose subject has aliases, the share in
      which some alias gets the object's label a higher probability than the subject's label does.
    - `extended_object`: of the facts under a prompt whose object has aliases, the share in which
      some alias of the object gets a higher probability than the object's label does.

    With variant `unit=alias`, every alias counts by itself. `n` counts facts with aliases.

    Source: BELIEF, appendix C.1, Table 10 (2025: Table 11).

    >>> counts = {"n_units": [2], "n_gaining": [1], "n_aliases": [4], "n_gains": [1]}
    >>> pair = {"relation_id": ["P36"], "pair_id": ["t"], "metric": ["extended_object"], **counts}
    >>> found = extended_entities(pl.DataFrame(pair), seed=1, n_rounds=10)
    >>> found.filter(slice="relation=P36").select("variant", "value").rows()
    [(None, 0.5), ('unit=alias', 0.25)]
    """
    found = []
    for metric in ("extended_subject", "extended_object"):
        pairs = gains.filter(metric=metric)
        sizes = pairs.group_by("relation_id").agg(pl.sum("n_units")).sort("relation_id")
        counts = Counts(dict(sizes.iter_rows()), {})
        for variant, (gaining, units) in _UNITS.items():
            terms = pair_terms(pairs, pl.sum(gaining), pl.sum(units))
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
