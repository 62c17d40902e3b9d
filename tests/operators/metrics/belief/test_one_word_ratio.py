"""One-word ratio."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.metrics.scalars import one_word_ratio


@given(data=st.data())
def test_one_word_ratio_any_answers_equals_share_over_prompts(
    data: st.DataObject, answer_tables: st.SearchStrategy[pl.DataFrame]
) -> None:
    answers = data.draw(answer_tables)
    lengths = answers["n_lemmas"].to_list()
    expected = lengths.count(1) / len(lengths) if lengths else None
    assert one_word_ratio(answers) == pytest.approx(expected)


def test_one_word_ratio_no_answers_is_none(no_answers: pl.DataFrame) -> None:
    assert one_word_ratio(no_answers) is None
