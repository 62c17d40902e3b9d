"""Tokens that do not read as their text are refused; what normalisers change on purpose is not."""

from collections.abc import Callable
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
from factsweep.operators.prompts.tokens import encode, warnings
from tests import tiny_bert
from tests.messages import naming

PROMPT = "Predict the [MASK] in one word.\nQ: The capital of France is [MASK].\nA:"
TEXTS = (
    PROMPT,
    "Q: Who founded  Côte d'Ivoire?\tA:",
    "“Smart” quotes — and ½, ﬁ, İstanbul, n\u0303, it's the 's-Hertogenbosch, ŉ",
    "東京は日本の首都です。\n答え：",
    " a <s>, a soft\u00adhyphen, a wide\u00a0blank and \u200bnothing 👩‍👩‍👧",
    "a text with an end </s>",
    "कोलकाता में",
)
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
LETTERS = sorted({*map(chr, range(32, 127)), *"".join(TEXTS)} - set(" \n\t\xa0"))


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
        for text in TEXTS:
            with subtests.test(tokenizer=name, text=text):
                assert len(encode(reads(backend), [text])) == 1


ASSIGNED = st.characters(exclude_categories=["Cs", "Cn", "Co", "Cc"])


@given(text=st.lists(st.text(ASSIGNED, max_size=8), max_size=6).map(" ".join))
def test_encode_any_text_by_bytes_is_not_refused(text: str) -> None:
    for backend in (byte_level(), begun(byte_fallback())):
        assert len(encode(reads(backend), [text])) == 1


def test_masked_encode_well_behaved_encoders_are_not_refused(
    subtests: Any,
) -> None:
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
