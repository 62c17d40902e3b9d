"""Items as requests: whole texts, and the tokens of the entity."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.engines.protocol import score_requests
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.plausibility import ITEMS
from tests.messages import naming

ENTITIES = ["Spain", "Trinidad and Tobago", "Åland🙂"]


def items(entities: list[str], context: str = "Fill in: Bo is of ____. Answer:") -> pl.DataFrame:
    rows = {
        "item_id": [f"{i}.statement" for i in range(len(entities))],
        "pair_id": ["P27.1"] * len(entities),
        "candidate_id": [str(i) for i in range(len(entities))],
        "setting": ["statement"] * len(entities),
        "context": [context] * len(entities),
        "continuation": [f" {entity}." for entity in entities],
        "entity_start": [len(context) + 1] * len(entities),
        "entity_end": [len(context) + 1 + len(entity) for entity in entities],
        "permutation_rank": [0] * len(entities),
    }
    return pl.DataFrame(rows, schema=ITEMS)


def test_requests_span_decodes_to_the_entity(tokenizer: Any) -> None:
    for request, entity in zip(score_requests(tokenizer, items(ENTITIES)), ENTITIES, strict=True):
        start, end = request.span
        assert tokenizer.decode(request.token_ids[start:end]) == f" {entity}"


def test_requests_text_is_tokenised_whole(tokenizer: Any) -> None:
    whole = "Fill in: Bo is of ____. Answer: Spain."
    (request,) = score_requests(tokenizer, items(["Spain"]))
    assert request.token_ids == tokenizer(whole).input_ids
    # A context that ends inside a word must not cut its tokens.
    cut = items(["Spain"], context=whole[:-9]).with_columns(continuation=pl.lit(whole[-9:]))
    (request,) = score_requests(tokenizer, cut)
    assert request.token_ids == tokenizer(whole).input_ids


def test_requests_group_is_a_pair_in_a_setting(tokenizer: Any) -> None:
    both = pl.concat(
        items(ENTITIES).with_columns(setting=pl.lit(each)) for each in ("statement", "question")
    )
    found = [request.group for request in score_requests(tokenizer, both)]
    assert found == ["P27.1.statement"] * 3 + ["P27.1.question"] * 3


def test_requests_no_items_is_no_requests(tokenizer: Any) -> None:
    assert list(score_requests(tokenizer, items([]))) == []


def test_requests_slow_tokenizer_is_refused() -> None:
    class Slow:
        is_fast = False
        name_or_path = "old-model"

    with pytest.raises(InputError, match=naming("old-model")):
        next(score_requests(Slow(), items(ENTITIES)))
