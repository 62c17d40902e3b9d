"""OpenAI's batch files: requests, one per line, and what comes back, in any order.

All that comes back with an answer is the `custom_id` of its request. So it says which prompt of
which setting and seed is answered, as the column `asked` does in other files.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.errors import InputError

_BETWEEN = " | "  # what stands behind it in a custom_id is `asked`
_SCHEMA = {"prompt_id": pl.String, "asked": pl.String, "text": pl.String}


class Answers(NamedTuple):
    """The answers of a file (prompt_id, asked, text), and why the other requests have none."""

    rows: pl.DataFrame
    failed: Mapping[str, int]


def request(
    prompt_id: str,
    asked: str,
    prompt: str | Sequence[Mapping[str, str]],
    body: Mapping[str, Any],
) -> dict[str, Any]:
    """A line of a file of requests: a text to be continued, or the turns of a chat.

    >>> request("P36.1.0", "zero-shot, seed 0", "Q: Where?", {"model": "m"})["custom_id"]
    'P36.1.0 | zero-shot, seed 0'
    """
    chat = not isinstance(prompt, str)
    return {
        "custom_id": f"{prompt_id}{_BETWEEN}{asked}",
        "method": "POST",
        "url": "/v1/chat/completions" if chat else "/v1/completions",
        "body": {**body, "messages" if chat else "prompt": prompt},
    }


def is_output(line: str) -> bool:
    """Whether a line is one of a batch's output.

    >>> is_output('{"custom_id": "a", "response": null, "error": {}}'), is_output('{"text": "a"}')
    (True, False)
    """
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and {"custom_id", "response"} <= found.keys()


def answers(lines: Iterable[str]) -> Answers:
    """The answers in a batch's output.

    Raises:
        InputError: a line is none of an output, or its request was not written here.
    """
    rows, failed = [], Counter[str]()
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        where = f"line {number} (counted from 0)"
        if not is_output(line):
            raise InputError(f"{where} is none of a batch's output; fetch it again.")
        found = json.loads(line)
        prompt_id, between, asked = str(found["custom_id"]).partition(_BETWEEN)
        if not between:
            raise InputError(
                f"{where} answers {found['custom_id']!r}, which is no custom_id of "
                "`factsweep prompts --batch`; give the output of such a file."
            )
        text, reason = _text(found)
        if text is None:
            failed[reason] += 1
        else:
            rows.append((prompt_id, asked, text))
    return Answers(pl.DataFrame(rows, schema=_SCHEMA, orient="row"), failed)


def _text(found: Mapping[str, Any]) -> tuple[str | None, str]:
    """The answer of a line, or why there is none."""
    response, error = found["response"] or {}, found.get("error") or {}
    status, body = response.get("status_code", 200), response.get("body") or {}
    if error or status != 200 or not body.get("choices"):
        return None, str(error.get("code") or f"status {status}")
    (choice, *_) = body["choices"]
    message = choice.get("message") or {}
    if choice.get("finish_reason") == "content_filter":
        return None, "content_filter"
    if message.get("refusal"):
        return None, "refused"
    text = message.get("content") if message else choice.get("text")
    return None if message and not (text or "").strip() else text, "no text"
