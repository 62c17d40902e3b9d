"""Token ids of prompts: whole texts, with exactly one BOS where the tokenizer wants one."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np

from factsweep.operators.prompts import chat, reading
from factsweep.operators.prompts.estimate import Estimate

# The methods by which transformers read texts with `tokenizers`, and where they are defined.
_READS = {
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

    With `chat_template` a text is the user's turn, and the reply has just begun; the template then
    writes the special tokens, and the tokenizer adds none. With `as_turns` it is a chat
    (`operators.prompts.turns`). `template_kwargs` are what the template is told besides, and with a
    `prefill` the reply has begun with that text.

    Raises:
        InputError: the first prompt's tokens do not read as its text (`reading.check`), or the
            template does not render the chat (`chat.rendered`).
    """
    if not texts:
        return []
    if chat_template:
        texts = chat.rendered(
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
        reading.check(tokenizer, texts[0], ids[0], opening=opening, needs_opening=needs_opening)
    return ids


def warnings(
    tokenizer: Any,
    text: str,
    *,
    chat_template: bool = False,
    as_turns: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
) -> list[str]:
    """A sentence for each part of a prompt that may be read in another sense."""
    if isinstance(tokenizer, Estimate):
        return []
    if chat_template:
        turns = chat.messages(text, as_turns=as_turns)
        return chat.warnings(tokenizer, turns, template_kwargs or {})
    if not reading.loses_line_ends(tokenizer, text, tokenizer(text).input_ids):
        return []
    return [
        f"the tokenizer of {tokenizer.name_or_path} ({type(tokenizer).__name__}) reads line ends "
        "as blanks: a prompt of several lines is one line to this model."
    ]


def _ids(tokenizer: Any, texts: list[str], *, add_special_tokens: bool) -> list[list[int]]:
    """The token ids of each text, as transformers read them.

    Where they only ask `tokenizers` beneath them, and the class has no reading of its own, these
    are asked for the ids alone: that takes a third less time.
    """
    own = {name: getattr(type(tokenizer), name, None) for name in _READS}
    is_plain = {name: getattr(each, "__module__", None) for name, each in own.items()} == _READS
    asked = texts[:1] if is_plain else texts
    ids: list[list[int]] = tokenizer(asked, add_special_tokens=add_special_tokens).input_ids
    if is_plain and len(texts) > 1:  # what transformers set for the first text holds for the others
        read = tokenizer.backend_tokenizer.encode_batch_fast
        ids += [each.ids for each in read(texts[1:], add_special_tokens=add_special_tokens)]
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

    `token_ids` is how the model reads them; `adds_text`: with more text. What must be short enough
    is not tokenised: a byte-level tokenizer that rewrites nothing makes at most one token per byte.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    exact = backend is None or backend.normalizer is not None or adds_text
    longest = limit - 8  # special tokens and a leading space
    suspects = [i for i, text in enumerate(texts) if exact or len(text.encode()) > longest]
    ids = token_ids(tokenizer, [texts[i] for i in suspects])
    return {i: len(each) for i, each in zip(suspects, ids, strict=True) if len(each) > limit}


def visible(tokenizer: Any, ids: Sequence[int]) -> str:
    """The prompt as the model reads it, special tokens written out."""
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def shared_start(texts: Sequence[Sequence[int]]) -> list[int]:
    """The tokens that all texts begin with.

    >>> shared_start([[1, 2, 3], [1, 2, 4, 5]])
    [1, 2]
    """
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*texts, strict=False))
    return [tokens[0] for tokens in alike]


def n_shared(ids: Sequence[Sequence[int]]) -> int:
    """The tokens that each prompt shares, from its start, with the one before it; summed.

    >>> n_shared([[1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 5], [2]])
    6
    """
    if len(ids) < 2:
        return 0
    table = np.full((len(ids), max(map(len, ids))), -1, dtype=np.int64)
    for row, each in enumerate(ids):
        table[row, : len(each)] = each
    equal = (table[1:] == table[:-1]) & (table[1:] >= 0)
    return int(np.logical_and.accumulate(equal, axis=1).sum())
