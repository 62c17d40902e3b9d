"""Token ids of prompts: whole texts, with exactly one BOS, whose tokens read as the text again.

A tokenizer may lose blanks, add an end of text, or have no token for a letter: then it is refused.
Normalisers may change case, accents, compatibility forms, quotation marks, dashes and runs of
blanks, and decoders may add blanks around marks.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Any

import numpy as np

from factsweep.operators.errors import InputError
from factsweep.operators.prompts import chat
from factsweep.operators.prompts.estimate import Estimate

# The methods by which transformers read texts with `tokenizers`, and their modules.
_READERS = {
    "__call__": "transformers.tokenization_utils_base",
    "_encode_plus": "transformers.tokenization_utils_tokenizers",
}


def encode(
    tokenizer: Any,
    texts: Sequence[str],
    *,
    chat_template: bool = False,
    as_turns: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
    may_think: bool = False,
    prefill: str | None = None,
) -> list[list[int]]:
    """The token ids of each text.

    With `chat_template` a text is the user's turn, or with `as_turns` a chat
    (`operators.prompts.chat`), and the reply has begun, with the text `prefill` if it is given; the
    template, which also gets `template_kwargs`, writes the special tokens.

    Raises:
        InputError: the first prompt's tokens do not read as its text (`check_reading`), or the
            template does not render the chat (`chat.render_chats`).
    """
    if not texts:
        return []
    if chat_template:
        texts = chat.render_chats(
            tokenizer,
            [chat.messages(text, as_turns=as_turns) for text in texts],
            template_kwargs=template_kwargs or {},
            may_think=may_think,
            prefill=prefill,
        )
    ids = _ids(tokenizer, list(texts), add_special_tokens=not chat_template)
    if not isinstance(tokenizer, Estimate):
        opening = tokenizer.bos_token_id
        needs_opening = not chat_template and wants_bos(tokenizer)
        check_reading(tokenizer, texts[0], ids[0], opening=opening, needs_opening=needs_opening)
    return ids


def warnings(
    tokenizer: Any,
    text: str,
    *,
    chat_template: bool = False,
    as_turns: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
) -> list[str]:
    """A sentence for each part of a prompt that the model may read in another sense."""
    if isinstance(tokenizer, Estimate):
        return []
    if chat_template:
        turns = chat.messages(text, as_turns=as_turns)
        return chat.warnings(tokenizer, turns, template_kwargs or {})
    body, _ = _without_ends(tokenizer, text, tokenizer(text).input_ids)
    if "\n" not in text.strip() or any("\n" in reading for reading in _readings(tokenizer, body)):
        return []
    return [
        f"the tokenizer of {tokenizer.name_or_path} ({type(tokenizer).__name__}) reads line ends "
        "as blanks: a prompt of several lines is one line to this model."
    ]


def _ids(tokenizer: Any, texts: list[str], *, add_special_tokens: bool) -> list[list[int]]:
    """The token ids of each text, as transformers read them.

    If the class has no reading of its own, the `tokenizers` beneath are called directly, which
    takes a third less time.
    """
    methods = {name: getattr(type(tokenizer), name, None) for name in _READERS}
    modules = {name: getattr(method, "__module__", None) for name, method in methods.items()}
    is_plain = modules == _READERS
    first = texts[:1] if is_plain else texts
    ids: list[list[int]] = tokenizer(first, add_special_tokens=add_special_tokens).input_ids
    if is_plain and len(texts) > 1:  # the settings of the first text hold for the others
        encode_batch = tokenizer.backend_tokenizer.encode_batch_fast
        encodings = encode_batch(texts[1:], add_special_tokens=add_special_tokens)
        ids += [encoding.ids for encoding in encodings]
    return ids


@lru_cache(maxsize=4)
def wants_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer starts a text with BOS."""
    return bool(tokenizer("").input_ids[:1] == [tokenizer.bos_token_id])


def too_long(
    tokenizer: Any,
    texts: Sequence[str],
    *,
    limit: int,
    token_ids: Callable[[Any, Sequence[str]], list[list[int]]] = encode,
    adds_text: bool = False,
) -> dict[int, int]:
    """The texts of more than `limit` tokens: their index → their number of tokens.

    `token_ids` tokenises them, with `adds_text` after adding text. A byte-level tokenizer without a
    normaliser makes at most one token per byte, so shorter texts are not tokenised.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    exact = backend is None or backend.normalizer is not None or adds_text
    longest = limit - 8  # special tokens and a leading space
    suspects = [i for i, text in enumerate(texts) if exact or len(text.encode()) > longest]
    ids = token_ids(tokenizer, [texts[i] for i in suspects])
    return {i: len(text) for i, text in zip(suspects, ids, strict=True) if len(text) > limit}


def visible(tokenizer: Any, ids: Sequence[int]) -> str:
    """The prompt as the model reads it, with its special tokens."""
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def shared_start(texts: Sequence[Sequence[int]]) -> list[int]:
    """The tokens that all texts begin with.

    >>> shared_start([[1, 2, 3], [1, 2, 4, 5]])
    [1, 2]
    """
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*texts, strict=False))
    return [tokens[0] for tokens in alike]


def n_shared(ids: Sequence[Sequence[int]]) -> int:
    """The number of tokens that prompts share with the one before, from the start; summed."""
    if len(ids) < 2:
        return 0
    table = np.full((len(ids), max(map(len, ids))), -1, dtype=np.int64)
    for row, token_ids in enumerate(ids):
        table[row, : len(token_ids)] = token_ids
    equal = (table[1:] == table[:-1]) & (table[1:] >= 0)
    return int(np.logical_and.accumulate(equal, axis=1).sum())


_QUOTES = frozenset("\"'`´ʼʹ")
# Accents, vowel signs, invisible characters, quotation marks, and codes without a character.
_IGNORED = ("Mn", "Mc", "Me", "Cf", "Cc", "Pi", "Pf", "Cn", "Co", "Cs")
_BROKEN = "\ufffd"  # of a character for which a vocabulary of bytes lacks some
_SPECIAL = " \ue000 "  # stands for a special token, which may take the blanks beside it
_BEFORE, _AFTER = 20, 40  # characters in a message around a difference
_OTHER_CLASS = (
    'set "tokenizer_class" in the tokenizer_config.json of a copy of the model to the class that '
    "its tokenizer.json was saved with (PreTrainedTokenizerFast reads any), or give the tokenizer "
    "that the model was trained with"
)


def check_reading(
    tokenizer: Any,
    text: str,
    ids: Sequence[int],
    *,
    opening: int | None,
    needs_opening: bool = False,
    may_close: bool = False,
) -> None:
    """Refuse tokens that do not read as their text.

    `opening` is the token that begins a text, at most once, and exactly once with `needs_opening`.
    With `may_close` special tokens may follow the text, as encoders need them.

    Raises:
        InputError: it names the tokenizer with its class, the change, and the fix.
    """
    if not text.strip():
        return
    name = f"the tokenizer of {tokenizer.name_or_path} ({type(tokenizer).__name__})"
    n_openings = len(list(takewhile(lambda token: token == opening, ids)))
    if opening is not None and (n_openings > 1 or (needs_opening and n_openings == 0)):
        raise InputError(
            f"{name} starts the prompt with {n_openings} BOS tokens instead of one; repair "
            "add_bos_token in its tokenizer_config.json, or the chat template "
            "(model.chat_template=FILE)."
        )
    body, closing = _without_ends(tokenizer, text, ids)
    if closing and not may_close:
        raise InputError(
            f"{name} writes {''.join(closing)} behind each text, so that no answer can follow; set "
            "add_eos_token to false in its tokenizer_config.json, or leave it out of the "
            "post_processor of its tokenizer.json."
        )
    readings = list(_readings(tokenizer, body))
    if fault := _explain_misreading(tokenizer, text, body, readings):
        written, read = text.lstrip(), readings[0].lstrip()
        alike = (a == b for a, b in zip(written.lower(), read.lower(), strict=False))
        start = len(list(takewhile(bool, alike)))
        window = slice(max(0, start - _BEFORE), start + _AFTER)
        written, read = written[window], read[window]
        raise InputError(f"{name} {fault}: it reads {written!r} as {read!r}; {_OTHER_CLASS}.")


def _without_ends(
    tokenizer: Any, text: str, ids: Sequence[int]
) -> tuple[Sequence[int], Sequence[str]]:
    """The tokens of the text itself, and the special ones that the tokenizer put after it."""
    special, begin, end = _special_tokens(tokenizer), 0, len(ids)
    while begin < end and not text.lstrip().startswith(special.get(ids[begin], "")):
        begin += 1
    while end > begin and not text.rstrip().endswith(special.get(ids[end - 1], "")):
        end -= 1
    return ids[begin:end], [special[token] for token in ids[end:]]


@lru_cache(maxsize=4)
def _special_tokens(tokenizer: Any) -> dict[int, str]:
    """The special tokens by id, without the unknown one, and tokens that strip blanks."""
    special = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    for token, added in tokenizer.added_tokens_decoder.items():
        if added.special or added.lstrip or added.rstrip:
            special[token] = added.content
    names = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "pad_token_id")
    if tokenizer.unk_token_id not in [getattr(tokenizer, name) for name in names]:
        special.pop(tokenizer.unk_token_id, None)
    return {token: stripped for token, content in special.items() if (stripped := content.strip())}


def _readings(tokenizer: Any, ids: Sequence[int]) -> Iterator[str]:
    """The decoded tokens, and other joins of them where decoding adds or removes blanks.

    A tokenizer without a decoder puts blanks between all tokens.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    model = type(getattr(backend, "model", None)).__name__
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    if backend is None or backend.decoder is not None or model == "WordLevel":
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        yield str(tokenizer.decode(list(ids), **options))
    elif model != "WordPiece":
        from tokenizers.decoders import ByteLevel

        yield ByteLevel().decode(tokens)
        yield "".join(tokens).replace("▁", " ")
    if model == "WordPiece":  # its decoder removes blanks before some marks
        yield " ".join(tokens).replace(f" {backend.model.continuing_subword_prefix}", "")


def _explain_misreading(
    tokenizer: Any, text: str, ids: Sequence[int], readings: Sequence[str]
) -> str | None:
    """How the tokenizer changes the text in all readings; null: one reading is the text.

    Letters of other scripts may be unknown: encoders of English have no tokens for them.
    """
    unknown, n_unknown = tokenizer.unk_token, 0
    if unknown is not None:
        n_unknown = ids.count(tokenizer.unk_token_id) - text.count(unknown)
    if n_unknown > sum(not letter.isascii() for letter in text):
        return f"has no token for a part of the prompt and writes {unknown} in its place"
    is_broken = not text.isascii() and any(_BROKEN in reading for reading in readings)
    if n_unknown > 0 or is_broken or any(text.strip() == reading.strip() for reading in readings):
        return None
    contents = sorted(_special_tokens(tokenizer).values(), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, contents)) or r"(?!)")
    written = _fold_text(text, pattern)
    folded_readings = [_fold_text(reading, pattern) for reading in readings]
    if not any(_letters(written) == _letters(reading) for reading in folded_readings):
        return "changes the prompt"
    if not any(_word_ends(written) <= _word_ends(reading) for reading in folded_readings):
        return "loses blanks or line ends between words"
    return None


def _fold_text(text: str, special: re.Pattern[str]) -> str:
    """A text without parts that normalisers change, and with a marker for each special token."""
    parts = []
    for part in special.split(text):
        unquoted = "".join(letter for letter in part if letter not in _QUOTES)
        decomposed = unicodedata.normalize("NFKD", unquoted.casefold()).casefold()
        kinds = ((letter, unicodedata.category(letter)) for letter in decomposed)
        letters = (
            "-" if kind == "Pd" else letter
            for letter, kind in kinds
            if letter.isspace() or (kind not in _IGNORED and letter not in _QUOTES)
        )
        parts.append("".join(letters))
    return _SPECIAL.join(parts)


def _letters(folded: str) -> str:
    return "".join(folded.split())


def _word_ends(folded: str) -> set[int]:
    """The number of letters before each run of blanks."""
    return set(accumulate(map(len, folded.split())))
