"""BEAR's metrics: accuracy by template, BEAR score, agreement of templates.

Source: BEAR (Wiland, Ploner and Akbik 2024), section 2; weights as in lm-pub-quiz 0.3.3: every
instance counts once.
"""

from collections.abc import Iterator
from typing import Unpack

import polars as pl

from factsweep.operators.datasets.facts import template_number
from factsweep.operators.metrics.shared.bootstrap import Draws, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import (
    Metric,
    Row,
    count_scored_pairs,
    pair_terms,
    ratio_rows,
    table,
)

METRICS = (
    Metric("bear_score", "BEAR score", "accuracy, mean over the templates; 0 to 1", "higher"),
    Metric("accuracy", "accuracy", "share of instances whose likeliest answer is right", "higher"),
    Metric("relation_mean", "mean over relations", "of the BEAR score; 0 to 1", "higher"),
    Metric("consist", "Consist", "share of pairs of templates with one prediction", "higher"),
    Metric("ties", "ties", "share of predictions with an equally likely answer", "lower"),
)


def predict(scores: pl.DataFrame, facts_pairs: pl.DataFrame, spaces: pl.DataFrame) -> pl.DataFrame:
    """The likeliest answer of each instance and template (table `predicted`); ties: the first wins.

    `scores` has relation_id, pair_id, template_id, subject_index (the answer's place) and logprob.
    An instance with an answer without a log-probability has no prediction in that template.
    """
    keys = ["relation_id", "pair_id", "template_id"]
    sizes = spaces.group_by("relation_id").agg(n_answers=pl.len())
    ordered = scores.drop_nulls("logprob").sort(*keys, "subject_index")
    best = pl.col("logprob").max()
    groups = ordered.group_by(keys, maintain_order=True).agg(
        n=pl.len(),
        prediction=pl.col("subject_index").get(pl.col("logprob").arg_max()).cast(pl.Int64),
        is_tie=(pl.col("logprob") == best).sum() > 1,
    )
    right = facts_pairs.select(
        "pair_id", label=pl.col("objects").list.first().struct.field("labels").list.first()
    )
    places = spaces.select("relation_id", "label", answer="place")
    rows = groups.join(sizes, on="relation_id").filter(pl.col("n") == pl.col("n_answers"))
    rows = rows.join(right, on="pair_id").join(places, on=["relation_id", "label"])
    is_right = pl.col("prediction") == pl.col("answer")
    return rows.select(*keys, "prediction", "is_tie", is_right=is_right)


def bear(
    predicted: pl.DataFrame,
    groups: pl.DataFrame,
    pairs: pl.DataFrame,
    templates: pl.DataFrame,
    **draws: Unpack[Draws],
) -> pl.DataFrame:
    """The rows of all metrics (table ROWS), over everything, by relation, template and group.

    `groups` has relation_id and name (domain=…, cardinality=…), `pairs` relation_id and pair_id,
    `templates` relation_id and n_templates.
    BEAR score and Consist are those of the instances with a prediction in every template; the
    others count in `n_failed`.
    """
    n_of_pair = predicted.group_by("relation_id", "pair_id").agg(n=pl.len())
    n_of_pair = n_of_pair.join(templates, on="relation_id")
    complete = n_of_pair.filter(pl.col("n") == pl.col("n_templates")).select("pair_id")
    complete_rows = predicted.join(complete, on="pair_id", how="semi", maintain_order="left")
    counts = count_scored_pairs(pairs, complete)
    score = bootstrap_ratio(pair_terms(complete_rows, pl.mean("is_right")), **draws)
    rows = counts.rows("bear_score", score)
    of_relations = [e.value for e in score.by_relation.values() if e.value is not None]
    mean = sum(of_relations) / len(of_relations) if of_relations else None
    rows.append(Row(None, None, "relation_mean", mean, None, None, complete.height, 0))
    rows += ratio_rows("consist", _consist_terms(complete_rows), counts, **draws)
    rows += ratio_rows("ties", pair_terms(complete_rows, pl.mean("is_tie")), counts, **draws)
    rows += _template_rows(predicted, pairs, **draws)
    for (name,), of_group in groups.group_by("name", maintain_order=True):
        part = complete_rows.join(of_group, on="relation_id", how="semi", maintain_order="left")
        estimate = bootstrap_ratio(pair_terms(part, pl.mean("is_right")), **draws).overall
        n = part["pair_id"].n_unique()
        rows.append(Row(None, str(name), "bear_score", *estimate, n, 0))
    return table(rows)


def _template_rows(
    predicted: pl.DataFrame, pairs: pl.DataFrame, **draws: Unpack[Draws]
) -> Iterator[Row]:
    number = template_number().str.to_integer()
    for (template,), rows in predicted.group_by(number, maintain_order=True):
        accuracy = bootstrap_ratio(pair_terms(rows, pl.mean("is_right")), **draws)
        counts = count_scored_pairs(pairs, rows)
        for row in counts.rows("accuracy", accuracy):
            place = f"template={template}"
            part = place if row.slice is None else f"{place},{row.slice}"
            yield row._replace(slice=part)


def _consist_terms(rows: pl.DataFrame) -> pl.DataFrame:
    """The share of an instance's pairs of templates that have the same prediction."""
    other = rows.select("pair_id", other="template_id", other_prediction="prediction")
    pairs = rows.join(other, on="pair_id").filter(pl.col("template_id") < pl.col("other"))
    is_same = pl.col("prediction") == pl.col("other_prediction")
    return pair_terms(pairs, is_same.mean())
