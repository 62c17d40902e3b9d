"""Token ids of prompts: whole texts, with exactly one BOS where the tokenizer wants one."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from factsweep.operators.errors import InputError, reason
from factsweep.operators.prompts.estimate import Estimate
from factsweep.operators.prompts.turns import turns

# What opens a thought, in the templates and answers of models that think first, and what ends it.
THOUGHT = r"(<\|?(?:seed:)?think(?:ing)?\|?>|\[THINK\]|◁think▷)"
THOUGHT_END = r"(</(?:seed:)?think(?:ing)?>|\[/THINK\]|◁/think▷)"
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
        InputError: the ids do not start with exactly one BOS where the tokenizer wants one, or the
            template takes no such chat, does not read what it is told, or opens a thought behind
            the chat and none may be thought.
    """
    if not texts:
        return []
    if chat_template:
        told = template_kwargs or {}
        chats = [messages(text, as_turns=as_turns) for text in texts]
        texts = [_chat(tokenizer, chat, told, prefill) for chat in chats]
        _check_told(tokenizer, told)
        if not may_think:
            _check_thought(tokenizer, texts[0], chats[0][-1]["content"])
    ids = _ids(tokenizer, list(texts), add_special_tokens=not chat_template)
    _check_bos(tokenizer, ids[0], expected=not chat_template and wants_bos(tokenizer))
    return ids


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


def messages(text: str, *, as_turns: bool) -> list[dict[str, str]]:
    """A prompt as the turns of a chat: its own, or one of the user."""
    return turns(text) if as_turns else [{"role": "user", "content": text}]


def _chat(
    tokenizer: Any, chat: list[dict[str, str]], told: Mapping[str, Any], prefill: str | None
) -> str:
    from jinja2 import TemplateError, TemplateSyntaxError

    if tokenizer.chat_template is None:
        raise InputError(
            f"model.chat_template=true, but {tokenizer.name_or_path} has no chat template; "
            "set model.chat_template=false."
        )
    ending = {"add_generation_prompt": True}
    if prefill is not None:
        chat = [*chat, {"role": "assistant", "content": prefill}]
        ending = {"continue_final_message": True}
    try:
        return str(tokenizer.apply_chat_template(chat, tokenize=False, **ending, **told))
    except TemplateSyntaxError as error:
        raise InputError(
            f"the chat template of {tokenizer.name_or_path} cannot be read, line {error.lineno}: "
            f"{error.message}; correct it, or give another with model.chat_template=FILE."
        ) from error
    except (TemplateError, ValueError) as error:
        if prefill is not None:
            raise InputError(
                f"the chat template of {tokenizer.name_or_path} lets no reply begin with "
                f"model.prefill={prefill!r} ({reason(error)}); give it without blanks at its end, "
                "or leave it out."
            ) from error
        raise InputError(
            f"the chat template of {tokenizer.name_or_path} takes no such turns ({reason(error)}); "
            "give prompt.system='', which puts the instruction into the user's first turn."
        ) from error


def _check_told(tokenizer: Any, told: Mapping[str, Any]) -> None:
    """Refuse what a template does not read: it would change nothing, and nobody would know."""
    if not told or isinstance(tokenizer, Estimate):  # only the server knows its template
        return
    template = tokenizer.get_chat_template()
    for name, value in told.items():
        if re.search(rf"\b{re.escape(name)}\b", template):
            continue
        if name != "enable_thinking":
            raise InputError(
                f"model.template_kwargs names {name}, which the chat template of "
                f"{tokenizer.name_or_path} does not read; correct the name, or leave it out."
            )
        if value is False and len(told) == 1:
            raise InputError(
                f"the chat template of {tokenizer.name_or_path} has no switch enable_thinking, so "
                "model.thinking=off would change nothing; name its own in model.template_kwargs, "
                "let it think (model.thinking=on), or leave model.thinking out."
            )


def _check_thought(tokenizer: Any, prompt: str, asked: str) -> None:
    """A model that is made to think would have its thought measured in place of its answer."""
    behind = prompt.rpartition(asked.strip() or prompt)[2]
    opened = [*re.finditer(THOUGHT, behind)]
    if opened and not re.search(THOUGHT_END, behind[opened[-1].end() :]):
        found = opened[-1]
        raise InputError(
            f"the chat template of {tokenizer.name_or_path} opens a thought ({found[1]}) behind "
            "the prompt, so the thought would be measured and not the answer; let it think first "
            "(model.thinking=on), switch it off with model.thinking=off, if the template has this "
            "switch, or ask without it (model.chat_template=false)."
        )


def wants_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer starts a text with BOS."""
    return bool(tokenizer("").input_ids[:1] == [tokenizer.bos_token_id])


def _check_bos(tokenizer: Any, ids: list[int], *, expected: bool) -> None:
    """Two BOS tokens, or none where the model was trained with one, cost accuracy silently."""
    bos = tokenizer.bos_token_id
    found = 0 if bos is None else len(list(takewhile(lambda each: each == bos, ids)))
    if found > 1 or (expected and found == 0):
        raise InputError(
            f"the prompt starts with {found} BOS tokens instead of one; repair the tokenizer of "
            f"{tokenizer.name_or_path} or set model.chat_template."
        )


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
