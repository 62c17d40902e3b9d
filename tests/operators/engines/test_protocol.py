"""What a score is a sum of; items as requests: whole texts, and the tokens of the entity."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.engines.protocol import Scored, ScoreRequest, score_requests
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.plausibility import ITEMS
from tests.messages import naming

LOGPROBS = st.lists(st.floats(-50, 0), max_size=8)


def scored(logprobs: list[float], span: tuple[int, int]) -> Scored:
    request = ScoreRequest("a", [7] * (len(logprobs) + 1), "g", span)
    return Scored.of(request, logprobs, n_cached_tokens=3)


@given(logprobs=LOGPROBS, data=st.data())
def test_scored_sums_equal_the_sums_over_the_tokens_places(
    logprobs: list[float], data: st.DataObject
) -> None:
    n_tokens = len(logprobs) + 1
    start = data.draw(st.integers(0, n_tokens))
    end = data.draw(st.integers(start, n_tokens))
    of_place: dict[int, float] = dict(enumerate(logprobs, start=1))
    result = scored(logprobs, (start, end))
    assert (result.n_tokens, result.entity_n_tokens) == (len(of_place), end - start)
    assert (result.n_prompt_tokens, result.n_cached_tokens) == (n_tokens, 3)
    assert result.logprob == (pytest.approx(sum(of_place.values())) if of_place else None)
    entity = [of_place.get(place) for place in range(start, end)]
    scored_values = [value for value in entity if value is not None]
    expected = (
        pytest.approx(sum(scored_values)) if entity and len(scored_values) == len(entity) else None
    )
    assert result.entity_logprob == expected


def test_scored_sum_does_not_depend_on_rounding() -> None:
    assert scored([-1.0, -1e-16, -1e-16], (0, 0)).logprob == -1.0000000000000002


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
    text = "Fill in: Bo is of ____. Answer: Spain."
    (request,) = score_requests(tokenizer, items(["Spain"]))
    assert request.token_ids == tokenizer(text).input_ids
    # A context that ends inside a word must not cut its tokens.
    cut = items(["Spain"], context=text[:-9]).with_columns(continuation=pl.lit(text[-9:]))
    (request,) = score_requests(tokenizer, cut)
    assert request.token_ids == tokenizer(text).input_ids


def test_requests_group_is_a_pair_in_a_setting(tokenizer: Any) -> None:
    rows = pl.concat(
        items(ENTITIES).with_columns(setting=pl.lit(setting))
        for setting in ("statement", "question")
    )
    groups = [request.group for request in score_requests(tokenizer, rows)]
    assert groups == ["P27.1.statement"] * 3 + ["P27.1.question"] * 3


def test_requests_no_items_is_no_requests(tokenizer: Any) -> None:
    assert list(score_requests(tokenizer, items([]))) == []


def test_requests_slow_tokenizer_is_refused() -> None:
    class Slow:
        is_fast = False
        name_or_path = "old-model"

    with pytest.raises(InputError, match=naming("old-model")):
        next(score_requests(Slow(), items(ENTITIES)))
