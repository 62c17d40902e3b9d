"""Metrics of encoder models alone: biased templates, other names, labels of several tokens."""

from typing import Unpack

import polars as pl

from factsweep.operators.metrics.shared.bootstrap import Draws
from factsweep.operators.metrics.shared.rows import (
    Metric,
    count_answers,
    pair_terms,
    plain_rows,
    ratio_rows,
    table,
)

MULTI = "prompts=multi"


def bias_level(content_free: pl.DataFrame) -> pl.DataFrame:
    """Give 1 − H/H_max (0 to 1; 0 prefers nothing), as rows of the table ROWS.

    `content_free` has one row per content-free prompt: relation_id, template_id, and probabilities,
    those of the relation's candidates in one order for the whole relation. A prompt's probabilities
    are renormalised, and a template's are the mean over its prompts ("N/A", "" and "?").

    - `bias_level`, variant null: single-prompt, the mean over templates of each one's bias level.
    - `bias_level`, variant `prompts=multi`: the bias level of the distribution that is averaged
      over the relation's templates; over all, the mean over relations.

    `n` counts content-free prompts. Relations with fewer than two candidates are left out, and so
    are prompts under which all candidates have probability 0.

    Source: BELIEF, section 5.4. In which order to average and to renormalise is not said there.

    >>> content_free = pl.DataFrame({
    ...     "relation_id": ["P1", "P1"], "template_id": ["a", "b"],
    ...     "probabilities": [[0.2, 0.0], [0.0, 0.1]],
    ... })
    >>> rows = bias_level(content_free).filter(pl.col("slice").is_null())
    >>> rows.select("metric", "variant", "value", "n").rows()
    [('bias_level', None, 1.0, 2), ('bias_level', 'prompts=multi', 0.0, 2)]
    """
    counts, share = count_answers(content_free), pl.element() / pl.element().sum()
    distributions = (
        content_free.filter(pl.col("probabilities").list.sum() > 0)
        .select(
            pl.col("relation_id", "template_id").cast(pl.String),
            place=pl.int_ranges(pl.col("probabilities").list.len()),
            p=pl.col("probabilities").cast(pl.List(pl.Float64)).list.eval(share),
        )
        .explode("place", "p")
    )
    p, rows = pl.col("p"), []
    entropy = -pl.when(p > 0).then(p * p.log()).otherwise(0.0).sum()
    level = pl.when(pl.len() > 1).then(1 - entropy / pl.len().log())  # null: a single candidate
    for ids, variant in ((("relation_id", "template_id"), None), (("relation_id",), MULTI)):
        distributions = distributions.group_by(*ids, "place").agg(pl.mean("p")).sort(*ids, "place")
        levels = distributions.group_by(ids, maintain_order=True).agg(numerator=level)
        defined = levels.drop_nulls("numerator").sort(ids)
        sums = defined.select("relation_id", "numerator", denominator=pl.lit(1.0))
        rows += plain_rows("bias_level", sums, counts, variant)
    return table(rows)


BIAS_LEVEL = Metric(
    "bias_level", "bias level", "how uneven the answers to prompts without a subject are"
)


EACH = "unit=alias"
_UNITS = {None: ("n_gaining", "n_units"), EACH: ("n_gains", "n_aliases")}
_FACT = ("relation_id", "pair_id", "template_id", "object_id")


def count_gains(label_probabilities: pl.DataFrame) -> pl.DataFrame:
    """Count for each pair how often an alias beats the label: one row per pair and metric.

    `label_probabilities` has a row for each prompt and each single-token label of a right object
    (label_index 0: the label; others: aliases). Columns: relation_id, pair_id, metric, n_units
    (facts that have aliases), n_gaining (units where some alias gains), n_aliases and n_gains.
    Units without the original (index 0) are left out. A tie is no gain.
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


def extended_entities(gains: pl.DataFrame, **draws: Unpack[Draws]) -> pl.DataFrame:
    """Give how often an alias beats the label, as rows of the table ROWS; from `count_gains`.

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
    rows = []
    for metric in ("extended_subject", "extended_object"):
        pairs = gains.filter(metric=metric)
        counts = count_answers(pairs, n=pl.sum("n_units"))
        for variant, (gaining, units) in _UNITS.items():
            terms = pair_terms(pairs, pl.sum(gaining), pl.sum(units))
            rows += ratio_rows(metric, terms, counts, **draws, variant=variant)
    return table(rows)


def _gains(rows: pl.DataFrame, index: str, unit: tuple[str, ...]) -> pl.DataFrame:
    """For each unit with an original and aliases: n_aliases, and n_gains, those above it."""
    original = pl.col("probability").filter(pl.col(index) == 0).first()
    aliases = pl.col("probability").filter(pl.col(index) > 0)
    units = rows.group_by(unit).agg(
        original=original, n_aliases=aliases.len(), n_gains=(aliases > original).sum()
    )
    return units.filter(pl.col("original").is_not_null(), pl.col("n_aliases") > 0)


UNITS = ("labels", "objects", "pairs")


def left_out_rows(counts: pl.DataFrame) -> pl.DataFrame:
    """Give the shares that are left out, as rows of the table ROWS.

    `labels_left_out`: of the distinct labels of right objects, those that are not one token of the
    model; `objects_left_out`: of the right objects of pairs, those without such a label;
    `pairs_left_out`: of the pairs, those without such an object, which are not asked. `n` counts
    labels, objects or pairs. `counts` comes from `operators.prompts.masked.count_left_out`.

    Source: BELIEF, footnote 6.
    """
    rows = []
    for unit in UNITS:
        sums = counts.select("relation_id", numerator=f"n_{unit}_left_out", denominator=f"n_{unit}")
        sizes = count_answers(counts, n=pl.sum(f"n_{unit}"))
        rows += plain_rows(f"{unit}_left_out", sums, sizes)
    return table(rows)


_LEFT_OUT = "share of the right objects that the model has no single token for"
OBJECTS_LEFT_OUT = Metric("objects_left_out", "objects left out", _LEFT_OUT)
