from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.metrics.belief.masked import left_out
from factsweep.operators.prompts.masked import count_left_out, label_tokens


def test_left_out_is_a_share_of_labels_objects_and_pairs(mini: Facts, tiny_bert: Any) -> None:
    labels = label_tokens(mini, tiny_bert.tokenizer)
    rows = left_out(count_left_out(labels))
    shares = {metric: (value, n) for metric, value, n in overall(rows)}
    objects = labels.group_by("pair_id", "object_id").agg(pl.col("token_id").count())
    pairs = labels.group_by("pair_id").agg(pl.col("token_id").count())
    for unit, said in (("objects", objects), ("pairs", pairs)):
        value, n = shares[f"{unit}_left_out"]
        assert value == pytest.approx((said["token_id"] == 0).mean())
        assert n == said.height
    assert 0 < shares["pairs_left_out"][0] <= shares["objects_left_out"][0] < 1


def test_left_out_relations_add_up_to_the_whole(mini: Facts, tiny_bert: Any) -> None:
    rows = left_out(count_left_out(label_tokens(mini, tiny_bert.tokenizer)))
    by_relation = rows.drop_nulls("slice").group_by("metric", maintain_order=True)
    summed = by_relation.agg(value=(pl.col("value") * pl.col("n")).sum() / pl.col("n").sum())
    assert summed["value"].to_list() == pytest.approx([value for _, value, _ in overall(rows)])


def overall(rows: pl.DataFrame) -> list[tuple[str, float, int]]:
    return rows.filter(pl.col("slice").is_null()).select("metric", "value", "n").rows()
