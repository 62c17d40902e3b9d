"""Token ids: one BOS where the tokenizer wants one, and no prompt that does not fit."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from factsweep.operators.errors import InputError
from factsweep.operators.prompts.tokens import encode, too_long, visible, wants_bos
from tests.messages import naming

VOCABULARY = {"<unk>": 0, "<s>": 1, "a": 2, "b": 3, "ab": 4, "<think>": 5, "</think>": 6}
WORDS = st.lists(st.sampled_from(["a", "b", "ab", "東"]), max_size=20).map(" ".join)
TEXTS = st.lists(st.text(st.sampled_from("ab é東\n🎸"), max_size=20), max_size=6)


def tiny(start: str, chat: str | None = None) -> PreTrainedTokenizerFast:
    """Reads words of its vocabulary; `start` is what it puts before a text."""
    backend = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [("<s>", VOCABULARY["<s>"])]
    backend.post_processor = processors.TemplateProcessing(f"{start} $A", special_tokens=special)
    found = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="<unk>")
    found.chat_template = chat
    return found


def test_encode_bos_tokenizer_puts_it_once() -> None:
    assert encode(tiny("<s>"), ["a b", "b"]) == [[1, 2, 3], [1, 3]]


def test_encode_two_bos_are_refused() -> None:
    with pytest.raises(InputError, match=naming("2 BOS", "repair")):
        encode(tiny("<s>"), ["<s> a b"])


def test_encode_tokenizer_without_bos_adds_none(tokenizer: Any) -> None:
    assert not wants_bos(tokenizer)
    (ids,) = encode(tokenizer, ["Q: Where is Paris?\nA:"])
    assert tokenizer.bos_token_id not in ids
    assert tokenizer.decode(ids) == "Q: Where is Paris?\nA:"


def test_encode_no_texts_is_no_ids(tokenizer: Any) -> None:
    assert encode(tokenizer, []) == []


def test_encode_texts_together_equal_each_alone(tokenizer: Any) -> None:
    texts = ["Q: a\nA:", "a much longer question than the first", ""]
    assert encode(tokenizer, texts) == [encode(tokenizer, [text])[0] for text in texts]


@given(texts=st.lists(st.text(max_size=30) | st.just("<|im_start|>a <|im_end|>"), max_size=5))
def test_encode_any_texts_equal_what_transformers_read(tokenizer: Any, texts: list[str]) -> None:
    assert encode(tokenizer, texts) == [tokenizer(text).input_ids for text in texts]


@pytest.mark.parametrize("method", ["__call__", "_encode_plus"])
def test_encode_tokenizer_with_a_reading_of_its_own_reads_all_by_it(method: str) -> None:
    def lowered(self: Any, text: Any, *args: Any, **given: Any) -> Any:
        lower = [each.lower() for each in text] if isinstance(text, list) else text
        return getattr(PreTrainedTokenizerFast, method)(self, lower, *args, **given)

    kind: Any = type("Lowering", (PreTrainedTokenizerFast,), {method: lowered})
    own = kind(tokenizer_object=tiny("<s>").backend_tokenizer, bos_token="<s>")
    assert encode(own, ["A", "B"]) == [[1, 2], [1, 3]]


def test_encode_chat_template_equals_the_tokenizers_own(tokenizer: Any) -> None:
    turn = [{"role": "user", "content": "Where is Paris?"}]
    own = tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
    assert encode(tokenizer, ["Where is Paris?"], chat_template=True) == [own]
    assert visible(tokenizer, own).endswith("<|im_start|>assistant\n")


def test_encode_chat_template_that_writes_bos_has_it_once() -> None:
    chat = "{{ bos_token }} {{ messages[0]['content'] }}"
    assert encode(tiny("<s>", chat), ["a b"], chat_template=True) == [[1, 2, 3]]


def test_encode_chat_template_that_writes_two_bos_is_refused() -> None:
    chat = "{{ bos_token }} {{ bos_token }} {{ messages[0]['content'] }}"
    with pytest.raises(InputError, match=naming("2 BOS")):
        encode(tiny("<s>", chat), ["a b"], chat_template=True)


def test_encode_missing_chat_template_is_refused() -> None:
    with pytest.raises(InputError, match=naming("model.chat_template=false", "set")):
        encode(tiny("<s>"), ["a"], chat_template=True)


def naive_too_long(
    tokenizer: Any, texts: list[str], limit: int, chat_template: bool
) -> dict[int, int]:
    lengths = [len(encode(tokenizer, [t], chat_template=chat_template)[0]) for t in texts]
    return {i: length for i, length in enumerate(lengths) if length > limit}


@pytest.mark.parametrize("chat_template", [False, True])
@given(texts=TEXTS, limit=st.integers(0, 50))
def test_too_long_any_texts_equals_tokenising_all(
    tokenizer: Any, texts: list[str], limit: int, chat_template: bool
) -> None:
    token_ids = partial(encode, chat_template=chat_template)
    found = too_long(tokenizer, texts, limit=limit, token_ids=token_ids, adds_text=chat_template)
    assert found == naive_too_long(tokenizer, texts, limit, chat_template)


@given(texts=st.lists(WORDS, max_size=6), limit=st.integers(0, 30))
def test_too_long_bos_counts_as_a_token(texts: list[str], limit: int) -> None:
    found = too_long(tiny("<s>"), texts, limit=limit)
    assert found == naive_too_long(tiny("<s>"), texts, limit, chat_template=False)


def test_too_long_tokenizer_that_lengthens_texts_is_asked_for_all() -> None:
    lengthening = tiny("<s>")
    lengthening.backend_tokenizer.normalizer = normalizers.Replace("a", "b b b b b b b b b b b b")

    def read(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        return [tokenizer(text).input_ids for text in texts]

    assert too_long(lengthening, ["a", "b"], limit=12, token_ids=read) == {0: 13}


def test_encode_template_that_opens_a_thought_is_refused_unless_it_is_switched_off() -> None:
    opens = "{% if enable_thinking is not defined or enable_thinking %}<think>{% endif %}"
    thinks = tiny("<s>", f"{{{{ messages[0]['content'] }}}} a {opens}")
    with pytest.raises(
        InputError, match=naming("<think>", "model.thinking=on", "model.thinking=off")
    ):
        encode(thinks, ["b"], chat_template=True)
    assert encode(thinks, ["b"], chat_template=True, may_think=True)[0][:2] == [3, 2]
    told = {"enable_thinking": False}
    assert encode(thinks, ["b"], chat_template=True, template_kwargs=told) == [[3, 2]]


def test_encode_thought_that_is_opened_with_words_or_by_a_prefill_is_refused() -> None:
    begun = tiny("<s>", "<think> a {{ messages[0]['content'] }} <think> a a")
    with pytest.raises(InputError, match=naming("<think>", "model.thinking=on")):
        encode(begun, ["b"], chat_template=True)
    turns = "{% for each in messages %}{{ each.content }} {% endfor %}"
    with pytest.raises(InputError, match=naming("<think>")):
        encode(tiny("<s>", turns), ["b"], chat_template=True, prefill="<think> a")
    told = tiny("<s>", "a <think> a {{ messages[0]['content'] }} a")  # it is told of, not opened
    assert encode(told, ["b"], chat_template=True)[0][-2:] == [3, 2]


def test_encode_template_that_does_not_read_what_it_is_told_is_refused() -> None:
    own = tiny("<s>", "{{ messages[0]['content'] }}{% if think_more %} a{% endif %}")
    for told, named in (
        ({"enable_thinking": False}, ("enable_thinking", "model.thinking=off")),
        ({"think": True}, ("model.template_kwargs", "think")),
    ):
        with pytest.raises(InputError, match=naming(*named)):
            encode(own, ["b"], chat_template=True, template_kwargs=told)
    for accepted in ({"enable_thinking": True}, {"enable_thinking": False, "think_more": False}):
        assert encode(own, ["b"], chat_template=True, template_kwargs=accepted) == [[3]]


def test_encode_template_that_is_no_jinja_is_refused_by_its_line() -> None:
    with pytest.raises(InputError, match=naming("line 2", "model.chat_template=FILE")):
        encode(tiny("<s>", "a\n{{ messages }"), ["b"], chat_template=True)


def test_encode_closed_thought_is_no_open_one() -> None:
    closed = tiny("<s>", "{{ messages[0]['content'] }} <think> </think>")
    assert encode(closed, ["b"], chat_template=True) == [[3, 5, 6]]


def test_encode_reply_that_has_begun_is_gone_on_with(tokenizer: Any) -> None:
    (ids,) = encode(tokenizer, ["Where is Paris?"], chat_template=True, prefill="It is in")
    assert visible(tokenizer, ids).endswith("<|im_start|>assistant\nIt is in")
    forgets = tiny("<s>", "{{ messages[0].content }}")
    with pytest.raises(InputError, match=naming("model.prefill", "'b'")):
        encode(forgets, ["a"], chat_template=True, prefill="b")
