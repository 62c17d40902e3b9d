"""Turns of a chat: what the system, the user and the assistant say, one after the other.

A chat stays a text until a model is asked: one JSON object per line, as OpenAI's `messages` have
them. So a context has its turns as it has its lines otherwise, and the query is the last of them.

    {"role":"system","content":"Predict the [MASK] in each sentence in one word."}
    {"role":"user","content":"Paris is the capital of [MASK]."}
"""

import hashlib
import json
from dataclasses import fields
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import Field

from factsweep.operators.errors import InputError

Role = Literal["system", "user", "assistant"]
# How a prompt is put to a chat model: whole, as one turn of the user, or as turns.
As = Annotated[Literal["chat", "turns"] | None, Field(alias="as")]
System = Annotated[str, Field(max_length=100_000)] | None


def turn(role: Role, content: pl.Expr) -> pl.Expr:
    """A turn as a line.

    >>> print(pl.select(turn("user", pl.lit("Who made it?"))).item())
    {"role":"user","content":"Who made it?"}
    <BLANKLINE>
    """
    line = pl.struct(role=pl.lit(role), content=content).struct.json_encode()
    return pl.concat_str(line, pl.lit("\n"))


def turns(text: str) -> list[dict[str, str]]:
    """The turns that are the lines of a text.

    >>> turns('{"role":"user","content":"Who made it?"}')
    [{'role': 'user', 'content': 'Who made it?'}]
    """
    return [json.loads(line) for line in text.split("\n") if line]


def listed(text: pl.Expr) -> pl.Expr:
    """Chats as lists of turns: role, content."""
    fields = pl.Struct({"role": pl.String, "content": pl.String})
    lines = text.str.strip_chars("\n").str.split("\n")
    return lines.list.eval(pl.element().str.json_decode(fields))


def shown(text: pl.Expr) -> pl.Expr:
    """A chat for people: who says what."""
    return text.map_elements(_shown, return_dtype=pl.String)


def _shown(text: str) -> str:
    return "".join(f"{each['role']}: {each['content']}\n" for each in turns(text))


def variant_of(setting: Any, *names: str, **further: str) -> str | None:
    """What stands in the column `variant`: the fields of these names that are not the defaults.

    Then what it departs in further, and how it is put to a chat model; null: in nothing.
    """
    defaults = {field.name: field.default for field in fields(setting)}
    departures = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name in names
        if (value := getattr(setting, name)) != defaults[name]
    }
    as_turns = parts(setting.as_, setting.system) if "as_" in defaults else {}
    found = departures | further | as_turns
    return ",".join(f"{name}={value}" for name, value in found.items()) or None


def check(asked: str | None, system: str | None) -> None:
    """Refuse a system prompt where there are no turns.

    Raises:
        InputError: it names both fields.
    """
    if system is not None and asked != "turns":
        raise InputError("prompt.system is a turn of its own; give prompt.as=turns with it.")


def parts(asked: str | None, system: str | None) -> dict[str, str]:
    """What the column `variant` has of it; a system prompt is known by a digest.

    >>> parts("turns", "You are a pirate.")
    {'as': 'turns', 'system': '400458a6'}
    >>> parts("chat", None), parts("turns", ""), parts(None, None)
    ({'as': 'chat'}, {'as': 'turns', 'system': 'none'}, {})
    """
    found = {} if asked is None else {"as": asked}
    if system is None:
        return found
    digest = hashlib.sha256(system.encode()).hexdigest()[:8]
    return found | {"system": digest if system else "none"}
