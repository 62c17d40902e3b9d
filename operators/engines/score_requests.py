"""Items (operators.prompts.plausibility) as an engine is asked for them: tokens and spans."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from factsweep.operators.engines.protocol import ScoreRequest
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.plausibility import entity_tokens
from factsweep.operators.prompts.tokens import encode


def score_requests(tokenizer: Any, items: pl.DataFrame) -> Iterator[ScoreRequest]:
    """A request for each item, in their order; the items have the columns of ITEMS.

    Texts are tokenised whole. Those of a pair in one setting are a group.

    Raises:
        InputError: the tokenizer cannot say where its tokens stand, or writes BOS twice.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} does not say which characters a token "
            "holds; take one that transformers calls fast (with a tokenizer.json)."
        )
    if items.is_empty():
        return
    rows = items.with_columns(
        text=pl.col("context") + pl.col("continuation"),
        group=pl.format("{}.{}", "pair_id", "setting"),
    )
    texts = rows["text"].to_list()
    offsets = tokenizer(texts, return_offsets_mapping=True).offset_mapping
    places = rows.select("item_id", "group", "entity_start", "entity_end").iter_rows()
    for ids, of_text, (item_id, group, start, end) in zip(
        encode(tokenizer, texts), offsets, places, strict=True
    ):
        yield ScoreRequest(item_id, ids, group, entity_tokens(of_text, start, end))
