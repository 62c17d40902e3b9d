"""Which right answers a masked model can give: the object labels that are one token of its own."""

from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts


def label_tokens(facts: Facts, tokenizer: Any) -> pl.DataFrame:
    """Every label of every right object, with its token where it is a single one.

    Columns: relation_id, pair_id, object_id, label_index (0 is the object's own label, the others
    are its aliases), label, token_id (null where the label is several tokens, or unknown).

    A label is encoded as it stands in a sentence, after a space: to some tokenizers a word at the
    start of a text is another token.
    """
    labels = (
        facts.pairs.select("relation_id", "pair_id", object="objects")
        .explode("object")
        .unnest("object")
        .with_columns(label_index=pl.int_ranges(pl.col("labels").list.len(), dtype=pl.UInt16))
        .explode("label_index", "labels")
        .rename({"labels": "label"})
    )
    tokens = _single_tokens(labels["label"].unique(maintain_order=True), tokenizer)
    return labels.join(tokens, on="label", how="left", maintain_order="left").select(
        "relation_id", "pair_id", "object_id", "label_index", "label", "token_id"
    )


def candidates(labels: pl.DataFrame) -> pl.DataFrame:
    """The distinct tokens among a relation's right answers: relation_id, label, token_id.

    Sorted by relation and token. Labels that are the same token, as "Us" and "US" to an uncased
    tokenizer, are one candidate, under the first of them. `labels` comes from `label_tokens`.
    """
    single = labels.drop_nulls("token_id").group_by("relation_id", "token_id", maintain_order=True)
    tokens = single.agg(pl.col("label").first()).sort("relation_id", "token_id")
    return tokens.select("relation_id", "label", "token_id")


def count_left_out(labels: pl.DataFrame) -> pl.DataFrame:
    """What a masked model cannot say, one row per relation.

    Columns: relation_id; n_labels and n_labels_left_out (distinct labels; those that are not one
    token); n_objects and n_objects_left_out (of pairs; those without such a label); n_pairs and
    n_pairs_left_out (those without such an object). `labels` comes from `label_tokens`.
    """
    units = {"labels": ["label"], "objects": ["pair_id", "object_id"], "pairs": ["pair_id"]}
    table = labels.select(pl.col("relation_id").unique().sort())
    for unit, columns in units.items():
        said = labels.group_by("relation_id", *columns).agg(pl.col("token_id").count())
        counts = said.group_by("relation_id").agg(
            pl.len().cast(pl.Int64).alias(f"n_{unit}"),
            (pl.col("token_id") == 0).sum().cast(pl.Int64).alias(f"n_{unit}_left_out"),
        )
        table = table.join(counts, on="relation_id", maintain_order="left")
    return table


def _single_tokens(labels: pl.Series, tokenizer: Any) -> pl.DataFrame:
    """The labels that are one known token: label, token_id."""
    texts = [f" {label}" for label in labels]
    encoded = tokenizer(texts, add_special_tokens=False).input_ids if texts else []
    token_ids = [
        ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None for ids in encoded
    ]
    tokens = pl.DataFrame({"label": labels, "token_id": pl.Series(token_ids, dtype=pl.Int64)})
    return tokens.drop_nulls("token_id")
