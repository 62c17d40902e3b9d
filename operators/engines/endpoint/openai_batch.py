"""OpenAI's batch files: requests, one per line, and what comes back, in any order.

All that comes back with an answer is the `custom_id` of its request. So it says which prompt of
which setting and seed is answered, as the column `asked` does in other files.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.engines.endpoint.replies import NoAnswerError, Read, Usage, counted, read
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty

_BETWEEN = " | "  # what stands behind it in a custom_id is `asked`
_SCHEMA = {"prompt_id": pl.String, "asked": pl.String, "text": pl.String}


class Answers(NamedTuple):
    """The answers of a file (prompt_id, asked, text), and why others, by prompt_id, have none.

    `thoughts` has what was thought before them (prompt_id, texts, n_tokens, ended), where a reply
    tells.
    """

    rows: pl.DataFrame
    thoughts: pl.DataFrame
    failed: Mapping[str, str]


def request(
    prompt_id: str, asked: str, prompt: str | Sequence[Mapping[str, str]], body: Mapping[str, Any]
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


def answers(lines: Iterable[str], stops: Sequence[str] = (), *, thinks: bool = False) -> Answers:
    """The answers in a batch's output, read as those to a request; `thinks`: the model may.

    Raises:
        InputError: a line is none of an output, or its request was not written here.
    """
    rows, thoughts, failed = [], [], {}
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        where = f"line {number} (counted from 0)"
        if not is_output(line):
            raise InputError(f"{where} is none of a batch's output; fetch it again.")
        # As the client gives the fields of a reply; nothing, where there are none.
        found = json.loads(line, object_hook=lambda each: SimpleNamespace(**each) if each else None)
        prompt_id, between, asked = str(found.custom_id).partition(_BETWEEN)
        if not between:
            raise InputError(
                f"{where} answers {found.custom_id!r}, which is no custom_id of "
                "`factsweep prompts --batch`; give the output of such a file."
            )
        try:
            answer, n_thought = _answer(found, stops, thinks=thinks)
        except NoAnswerError as error:
            failed[prompt_id] = error.reason
            continue
        rows.append((prompt_id, asked, answer.text))
        if answer.thought:
            thoughts.append((prompt_id, [answer.thought], [n_thought], ["unknown"]))
    schema = empty("thoughts").schema
    return Answers(
        pl.DataFrame(rows, schema=_SCHEMA, orient="row"),
        pl.DataFrame(thoughts, schema=schema, orient="row"),
        failed,
    )


def _answer(found: Any, stops: Sequence[str], *, thinks: bool) -> tuple[Read, int]:
    """The answer of a line, and how many tokens its thought has.

    Raises:
        NoAnswerError: there is none.
    """
    error, body = getattr(found, "error", None), getattr(found.response, "body", None)
    status = getattr(found.response, "status_code", 200)
    choices = getattr(body, "choices", None)
    if error or status != 200 or not choices:
        code = str(getattr(error, "code", None) or f"status {status}")
        raise NoAnswerError(code, "the request failed", Usage(0, 0))
    (choice, *_) = choices
    chat = getattr(choice, "message", None) is not None
    usage = counted(body) or Usage(0, 0)
    return read(choice, stops, usage, chat=chat, thinks=thinks), usage.thought
