"""Token ids: one BOS where the tokenizer wants one, tokens that read as their text, and lengths."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from transformers import PreTrainedTokenizerFast

from factsweep.operators.errors import InputError
from factsweep.operators.prompts import masked
from factsweep.operators.prompts.tokens import (
    encode,
    n_shared,
    too_long,
    visible,
    wants_bos,
    warnings,
)
from tests import tiny_bert
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
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", unk_token="<unk>"
    )
    tokenizer.chat_template = chat
    return tokenizer


def test_encode_bos_stands_once() -> None:
    chat = "{{ bos_token }} {{ messages[0]['content'] }}"
    assert encode(tiny("<s>"), ["a b", "b"]) == [[1, 2, 3], [1, 3]]
    assert encode(tiny("<s>", chat), ["a b"], chat_template=True) == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("chat", "text", "words"),
    [
        (None, "<s> a b", ["2 BOS", "repair"]),
        ("{{ bos_token }} {{ bos_token }} {{ messages[0]['content'] }}", "a b", ["2 BOS"]),
        ("", "a", ["model.chat_template=false", "set"]),
        ("a\n{{ messages }", "b", ["line 2", "model.chat_template=FILE"]),
    ],
)
def test_encode_tokenizer_or_template_that_is_unfit_is_refused(
    chat: str | None, text: str, words: list[str]
) -> None:
    with pytest.raises(InputError, match=naming(*words)):
        encode(tiny("<s>", chat or None), [text], chat_template=chat is not None)


def test_encode_tokenizer_without_bos_adds_none(tokenizer: Any) -> None:
    assert not wants_bos(tokenizer)
    (ids,) = encode(tokenizer, ["Q: Where is Paris?\nA:"])
    assert tokenizer.bos_token_id not in ids
    assert tokenizer.decode(ids) == "Q: Where is Paris?\nA:"


@given(texts=st.lists(st.text(max_size=30) | st.just("<|im_start|>a <|im_end|>"), max_size=5))
def test_encode_any_texts_equal_what_transformers_read(tokenizer: Any, texts: list[str]) -> None:
    assert encode(tokenizer, texts) == [tokenizer(text).input_ids for text in texts]


@pytest.mark.parametrize("method", ["__call__", "_encode_plus"])
def test_encode_tokenizer_with_a_reading_of_its_own_reads_all_by_it(method: str) -> None:
    def lowered(self: Any, text: Any, *args: Any, **options: Any) -> Any:
        lower = [line.lower() for line in text] if isinstance(text, list) else text
        return getattr(PreTrainedTokenizerFast, method)(self, lower, *args, **options)

    kind: Any = type("Lowering", (PreTrainedTokenizerFast,), {method: lowered})
    lowering = kind(tokenizer_object=tiny("<s>").backend_tokenizer, bos_token="<s>")
    assert encode(lowering, ["A", "B"]) == [[1, 2], [1, 3]]


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
    lengths = too_long(tokenizer, texts, limit=limit, token_ids=token_ids, adds_text=chat_template)
    assert lengths == naive_too_long(tokenizer, texts, limit, chat_template)


@given(texts=st.lists(WORDS, max_size=6), limit=st.integers(0, 30))
def test_too_long_bos_counts_as_a_token(texts: list[str], limit: int) -> None:
    lengths = too_long(tiny("<s>"), texts, limit=limit)
    assert lengths == naive_too_long(tiny("<s>"), texts, limit, chat_template=False)


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
    template_kwargs = {"enable_thinking": False}
    assert encode(thinks, ["b"], chat_template=True, template_kwargs=template_kwargs) == [[3, 2]]


def test_encode_thought_that_is_opened_with_words_or_by_a_prefill_is_refused() -> None:
    opening = tiny("<s>", "<think> a {{ messages[0]['content'] }} <think> a a")
    with pytest.raises(InputError, match=naming("<think>", "model.thinking=on")):
        encode(opening, ["b"], chat_template=True)
    turns = "{% for each in messages %}{{ each.content }} {% endfor %}"
    with pytest.raises(InputError, match=naming("<think>")):
        encode(tiny("<s>", turns), ["b"], chat_template=True, prefill="<think> a")
    mentioning = tiny(
        "<s>", "a <think> a {{ messages[0]['content'] }} a"
    )  # it is told of, not opened
    assert encode(mentioning, ["b"], chat_template=True)[0][-2:] == [3, 2]
    closed = tiny("<s>", "{{ messages[0]['content'] }} <think> </think>")
    assert encode(closed, ["b"], chat_template=True) == [[3, 5, 6]]


def test_encode_template_that_does_not_read_what_it_is_told_is_refused() -> None:
    tokenizer = tiny("<s>", "{{ messages[0]['content'] }}{% if think_more %} a{% endif %}")
    for template_kwargs, words in (
        ({"enable_thinking": False}, ("enable_thinking", "model.thinking=off")),
        ({"think": True}, ("model.template_kwargs", "think")),
    ):
        with pytest.raises(InputError, match=naming(*words)):
            encode(tokenizer, ["b"], chat_template=True, template_kwargs=template_kwargs)
    for accepted in ({"enable_thinking": True}, {"enable_thinking": False, "think_more": False}):
        assert encode(tokenizer, ["b"], chat_template=True, template_kwargs=accepted) == [[3]]


def test_encode_reply_that_has_begun_is_gone_on_with(tokenizer: Any) -> None:
    (ids,) = encode(tokenizer, ["Where is Paris?"], chat_template=True, prefill="It is in")
    assert visible(tokenizer, ids).endswith("<|im_start|>assistant\nIt is in")
    forgets = tiny("<s>", "{{ messages[0].content }}")
    with pytest.raises(InputError, match=naming("model.prefill", "'b'")):
        encode(forgets, ["a"], chat_template=True, prefill="b")


PROMPT = "Predict the [MASK] in one word.\nQ: The capital of France is [MASK].\nA:"
PROMPTS = (
    PROMPT,
    "Q: Who founded  Côte d'Ivoire?\tA:",
    "“Smart” quotes — and ½, ﬁ, İstanbul, n\u0303, it's the 's-Hertogenbosch, ŉ",
    "東京は日本の首都です。\n答え：",
    " a <s>, a soft\u00adhyphen, a wide\u00a0blank and \u200bnothing 👩‍👩‍👧",
    "a text with an end </s>",
    "कोलकाता में",
)
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
LETTERS = sorted({*map(chr, range(32, 127)), *"".join(PROMPTS)} - set(" \n\t\xa0"))


def byte_level() -> Tokenizer:
    """GPT-2's kind: each byte is a letter, and a blank is one of them."""
    alphabet = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def byte_fallback() -> Tokenizer:
    """Llama's kind: a blank before the text, and bytes for what the vocabulary lacks."""
    alphabet = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *"▁ABCabcdefghistuw"]
    vocabulary = {letter: i for i, letter in enumerate(alphabet)}
    backend = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    replaced = decoders.Replace("▁", " ")
    backend.decoder = decoders.Sequence(
        [replaced, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return backend


def unigram() -> Tokenizer:
    """T5's and XLM-R's kind: NFKC, runs of blanks are one, line ends are blanks."""
    scores = [(token, 0.0) for token in SPECIAL] + [(letter, -1.0) for letter in ["▁", *LETTERS]]
    backend = Tokenizer(models.Unigram(scores, unk_id=0))
    blanks = normalizers.Replace(Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), blanks])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


def word_level() -> Tokenizer:
    """Words and marks, without a decoder: tokens are joined by blanks."""
    backend = Tokenizer(models.WordLevel({token: i for i, token in enumerate(SPECIAL)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


def reads(backend: Tokenizer) -> Any:
    """A tokenizer of transformers, with a mask that takes the blank before it."""
    names = ("unk_token", "bos_token", "eos_token", "pad_token")
    mask = AddedToken("<mask>", lstrip=True, special=True)
    special = dict(zip(names, SPECIAL, strict=False))
    return PreTrainedTokenizerFast(tokenizer_object=backend, mask_token=mask, **special)


def begun(backend: Tokenizer, template: str = "<s> $A") -> Tokenizer:
    special = [(token, SPECIAL.index(token)) for token in ("<s>", "</s>", "<pad>")]
    backend.post_processor = processors.TemplateProcessing(template, special_tokens=special)
    return backend


def test_encode_well_behaved_tokenizers_are_not_refused(subtests: Any) -> None:
    undecoded, without_bytes = byte_level(), byte_fallback()
    undecoded.decoder = without_bytes.decoder = None
    without_accents = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()])
    backends = {
        "byte-level": byte_level(),
        "byte-level with BOS": begun(byte_level()),
        "byte-level without a decoder": undecoded,
        "byte fallback": begun(byte_fallback()),
        "unigram": unigram(),
        "compatibility forms": with_parts(byte_level, normalizer=normalizers.NFKC()),
        "without accents": with_parts(byte_level, normalizer=without_accents),
    }
    for name, backend in backends.items():
        for text in PROMPTS:
            with subtests.test(tokenizer=name, text=text):
                assert len(encode(reads(backend), [text])) == 1


ASSIGNED = st.characters(exclude_categories=["Cs", "Cn", "Co", "Cc"])


@given(text=st.lists(st.text(ASSIGNED, max_size=8), max_size=6).map(" ".join))
def test_encode_any_text_by_bytes_is_not_refused(text: str) -> None:
    for backend in (byte_level(), begun(byte_fallback())):
        assert len(encode(reads(backend), [text])) == 1


def test_masked_encode_well_behaved_encoders_are_not_refused(subtests: Any) -> None:
    sentence = "The Capital of Côte d'Ivoire (the 's-Hertogenbosch) is [MASK], don't you say."
    uncased = tiny_bert.tokenizer([sentence])
    roberta = reads(begun(byte_level(), "<s> $A </s>"))
    for name, tokenizer in {"uncased": uncased, "RoBERTa": roberta}.items():
        for text in (sentence, "[MASK] is 東京."):
            with subtests.test(tokenizer=name, text=text):
                assert len(masked.encode(tokenizer, [text])) == 1
    uncased.backend_tokenizer.normalizer = normalizers.Replace(" ", "")
    with pytest.raises(InputError, match=naming("loses blanks", "PreTrainedTokenizerFast")):
        masked.encode(uncased, ["the capital [MASK]"])


def with_parts(make: Callable[[], Tokenizer], **parts: Any) -> Tokenizer:
    backend = make()
    for name, part in parts.items():
        setattr(backend, name, part)
    return backend


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        (with_parts(byte_level, pre_tokenizer=pre_tokenizers.Metaspace()), ["loses blanks"]),
        (with_parts(byte_level, normalizer=normalizers.Replace("\n", "")), ["line ends"]),
        (with_parts(byte_level, normalizer=normalizers.Replace("capital", "")), ["changes"]),
        (begun(byte_level(), "$A </s>"), ["</s>", "add_eos_token", "post_processor"]),
        (begun(byte_level(), "<s> $A <pad>"), ["<pad>", "add_eos_token"]),
        (begun(byte_level(), "<s> <s> $A"), ["2 BOS", "add_bos_token"]),
        (word_level(), ["no token", "<unk>"]),
    ],
)
def test_encode_tokens_that_read_otherwise_are_refused(
    backend: Tokenizer, words: list[str]
) -> None:
    with pytest.raises(InputError, match=naming("TokenizersBackend", *words)):
        encode(reads(backend), [PROMPT])


def test_warnings_line_ends_that_are_read_as_blanks_are_named() -> None:
    assert warnings(reads(byte_level()), PROMPT) == []
    (warning,) = warnings(reads(unigram()), PROMPT)
    assert "line ends as blanks" in warning


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=8))
def test_n_shared_any_ids_equals_naive_comparison(ids: list[list[int]]) -> None:
    def shared(first: list[int], other: list[int]) -> int:
        return len(
            list(takewhile(lambda pair: pair[0] == pair[1], zip(first, other, strict=False)))
        )

    assert n_shared(ids) == sum(shared(first, other) for first, other in pairwise(ids))
