"""Thoughts of a model: where one ends, by vLLM's reasoning parsers, and how one is closed."""

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from factsweep.operators.engines.kind import source
from factsweep.operators.engines.protocol import Thought
from factsweep.operators.errors import InputError, reason

# Parsers whose marks are looked for in the tokenizer's vocabulary, where none is named.
_KNOWN = ("qwen3", "seed_oss")
# As models write it, and as their templates do where they skip the thought.
_BEHIND = "\n\n"


def parsers() -> frozenset[str] | None:
    """The names of vLLM's reasoning parsers; null where vLLM is not installed."""
    statements = source("vllm", "reasoning/__init__.py")
    if statements is None:
        return None
    tables = (node.value for node in statements if isinstance(node, ast.Assign))
    keys = (key for table in tables if isinstance(table, ast.Dict) for key in table.keys)
    return frozenset(str(key.value) for key in keys if isinstance(key, ast.Constant))


class Marks(NamedTuple):
    """How a thought begins and ends, as text."""

    tokenizer: Any
    start: str
    end: str

    def thought(self, ids: Sequence[int], text: str, *, at_length: bool) -> Thought:
        """The thought among a model's tokens, without its marks."""
        said = self.tokenizer.decode(ids, skip_special_tokens=True).partition(self.end)[0]
        thought = said.replace(self.start, "", 1).strip()
        if self.end in text:
            return Thought(thought, len(ids), "itself")
        return Thought(thought, len(ids), "budget" if at_length else "silence")

    def closed(self, ids: Sequence[int], text: str) -> list[int]:
        """The thought's tokens, with what makes the answer begin behind them."""
        _, found, behind = text.partition(self.end)
        own = list(ids)
        while not found and own and own[-1] in self.tokenizer.all_special_ids:
            own.pop()  # the end of the model's turn
        blank = "" if behind.strip(" ") else _BEHIND
        lacking = blank if found else f"\n{self.end}{_BEHIND}"
        return own + list(self.tokenizer.encode(lacking, add_special_tokens=False))


def marks(tokenizer: Any, parser: str | None) -> Marks:
    """The marks of a parser of vLLM's; null: of the first whose end the vocabulary has.

    Raises:
        InputError: there is no such parser, or none that knows marks of this tokenizer.
    """
    from vllm.reasoning import ReasoningParserManager

    known = sorted(ReasoningParserManager.list_registered())
    if parser is not None and parser not in known:
        raise InputError(
            f"model.reasoning_parser={parser} is none of vLLM's; it has {', '.join(known)}."
        )
    for name in _KNOWN if parser is None else (parser,):
        try:
            found = ReasoningParserManager.get_reasoning_parser(name)(tokenizer)
            start, end = found.reasoning_start_str, found.reasoning_end_str
        except Exception as error:
            if parser is not None:
                raise InputError(
                    f"model.reasoning_parser={parser} does not fit the tokenizer of "
                    f"{tokenizer.name_or_path} ({reason(error)}); give another."
                ) from error
            continue
        vocabulary = tokenizer.get_vocab()
        if start and end and (parser is not None or end in vocabulary):
            return Marks(tokenizer, start, end)
    raise InputError(
        f"model.thinking=on, and no marks of a thought are known for {tokenizer.name_or_path}; "
        f"give model.reasoning_parser: one of {', '.join(known)} that has marks."
    )
