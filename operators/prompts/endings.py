"""Endings: what may follow a name so that the name is over, as tokens of a vocabulary.

    eos        the end of the text, one token: the paper's
    sentence   a full stop, a line end, or the end of the text: the probabilities of all tokens that
               begin one of them are summed

A token with a full stop counts where nothing but more stops, closing quotes or brackets and blanks
follow in it: not `.com`, `.5` or `.,`. Of line ends all do, whatever blanks stand around them. A
name that has a full stop of its own (`Inc.`) must be followed by an ending, too. What the choice
does to a real model: docs/metrics.md, Plausibility.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from factsweep.operators.errors import InputError

Ending = Literal["eos", "sentence"]

_SENTENCE = re.compile(r"""\.[.…"'’”»)\]]*\s*\Z|[ \t]*[\r\n]""")


def ending_tokens(tokenizer: Any, ending: Ending) -> tuple[int, ...]:
    """The tokens that begin an ending, in ascending order.

    Raises:
        InputError: the tokenizer has no token for the end of a text.
    """
    eos = tokenizer.eos_token_id
    if eos is None:
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} has no token for the end of a text "
            f"(eos_token), which prompt.ending={ending} asks for; take a model that has one."
        )
    if ending == "eos":
        return (int(eos),)
    texts = _texts(tokenizer)
    return tuple(i for i, text in enumerate(texts) if i == eos or _SENTENCE.match(text))


def _texts(tokenizer: Any) -> Sequence[str]:
    """What each token adds behind a word: by itself, some tokenizers drop the blank before it."""
    (anchor,) = tokenizer("a", add_special_tokens=False).input_ids[-1:]
    behind = tokenizer.batch_decode(
        [[anchor, each] for each in range(len(tokenizer))], clean_up_tokenization_spaces=False
    )
    begin = len(tokenizer.decode([anchor], clean_up_tokenization_spaces=False))
    return [text[begin:] for text in behind]
