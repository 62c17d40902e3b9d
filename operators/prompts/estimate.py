"""A substitute for the unknown tokenizer of an endpoint: it cuts texts into about as many pieces.

Costs and lengths are needed before the first request, so tokens are estimated: words with the blank
before them, long ones in parts, digits and signs.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from factsweep.operators import seeds

ESTIMATE = "estimate 1"  # in recipes; a change of the method raises the number
_PIECE = re.compile(
    r" ?[A-Z]?[a-z]{1,8}"  # words are cut into parts of so many letters
    r"| ?[A-Z]{1,3}"
    r"| ?[^\W\d_A-Za-z]{1,2}"  # other scripts, and letters with accents
    r"|\d"
    r"| ?[^\w\s]{1,2}"
    r"|\s+|_"
)


class Encoding(NamedTuple):
    """The part of a transformers tokenizer's result that is read here."""

    input_ids: Any


class Estimate:
    """Counts tokens of a model without its tokenizer; a piece has the same id in every process."""

    name_or_path = "an estimate"
    chat_template = "an estimate"
    bos_token_id = None

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._pieces: dict[int, str] = {}

    def __call__(self, texts: str | Sequence[str], *, add_special_tokens: bool = True) -> Encoding:
        """The pieces of one text, or of each of several, without special tokens.

        >>> len(Estimate()("Q: Tegucigalpa is in [MASK].").input_ids)
        10
        """
        del add_special_tokens
        if isinstance(texts, str):
            return Encoding(self._encode(texts))
        return Encoding(list(map(self._encode, texts)))

    def apply_chat_template(
        self,
        turns: Sequence[dict[str, str]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        **_template_kwargs: object,
    ) -> str:
        """The turns with their markers, about four tokens each, and the marker of the reply."""
        assert not tokenize
        assert add_generation_prompt
        written = (f"<|{turn['role']}|>\n{turn['content']}\n" for turn in turns)
        return "".join(written) + "<|assistant|>\n"

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of these pieces."""
        del skip_special_tokens
        return "".join(self._pieces[number] for number in ids)

    def _encode(self, text: str) -> list[int]:
        ids = []
        for piece in _PIECE.findall(text):
            if piece not in self._ids:
                self._ids[piece] = seeds.key(piece) >> 16  # fits a signed integer
                self._pieces[self._ids[piece]] = piece
            ids.append(self._ids[piece])
        return ids
