"""Endings: which tokens of a real vocabulary end a name, and which go on with it."""

from typing import Any

import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import ending_tokens
from tests.messages import naming


def test_eos_is_one_token(tokenizer: Any) -> None:
    assert ending_tokens(tokenizer, "eos") == (tokenizer.eos_token_id,)


@pytest.mark.parametrize("text", [".", "\n", "\n\n", '."', ".)", "...", " \n", "\r\n"])
def test_sentence_ends_with_stops_and_line_ends(tokenizer: Any, text: str) -> None:
    (token,) = tokenizer(f"a{text}").input_ids[1:]
    assert token in ending_tokens(tokenizer, "sentence")


@pytest.mark.parametrize("text", [",", ".,", " a", "'s", ":", "./", " (", "!"])
def test_sentence_goes_on_with_anything_else(tokenizer: Any, text: str) -> None:
    token = tokenizer(f"a{text}").input_ids[1]
    assert token not in ending_tokens(tokenizer, "sentence")


def test_sentence_has_the_end_of_the_text(tokenizer: Any) -> None:
    assert tokenizer.eos_token_id in ending_tokens(tokenizer, "sentence")


def test_ending_without_eos_is_refused(tokenizer: Any) -> None:
    class WithoutEos:
        eos_token_id, name_or_path = None, "nameless"

    with pytest.raises(InputError, match=naming("nameless", "token")):
        ending_tokens(WithoutEos(), "eos")
