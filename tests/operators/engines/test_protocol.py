"""What a score is a sum of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.engines.protocol import Scored, ScoreRequest

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
    found = scored(logprobs, (start, end))
    assert (found.n_tokens, found.entity_n_tokens) == (len(of_place), end - start)
    assert (found.n_prompt_tokens, found.n_cached_tokens) == (n_tokens, 3)
    assert found.logprob == (pytest.approx(sum(of_place.values())) if of_place else None)
    entity = [of_place.get(place) for place in range(start, end)]
    whole = [value for value in entity if value is not None]
    expected = pytest.approx(sum(whole)) if entity and len(whole) == len(entity) else None
    assert found.entity_logprob == expected


def test_scored_entity_with_the_first_token_has_no_number() -> None:
    found = scored([-1.0, -2.0], (0, 2))
    assert (found.entity_n_tokens, found.entity_logprob) == (2, None)


def test_scored_lonely_token_has_no_number() -> None:
    found = scored([], (0, 1))
    assert (found.n_tokens, found.logprob, found.entity_logprob) == (0, None, None)


def test_scored_sum_does_not_depend_on_rounding() -> None:
    assert scored([-1.0, -1e-16, -1e-16], (0, 0)).logprob == -1.0000000000000002
