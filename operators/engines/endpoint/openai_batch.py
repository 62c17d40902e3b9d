"""OpenAI's batch files: one request per line, and its answers, in any order.

The `custom_id` of a request names the prompt, its setting and its seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.engines.endpoint.response_parsing import (
    NoAnswerError,
    Usage,
    as_object,
    parse,
    parse_usage,
    quote,
    read,
)
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty

_SEPARATOR = " | "  # in a custom_id, before `asked`
_SCHEMA = {"prompt_id": pl.String, "asked": pl.String, "text": pl.String}


class Answers(NamedTuple):
    """The answers of a file (prompt_id, asked, text), with their thoughts where replies have any.

    Of prompts without an answer, by prompt_id, `failed` has the reason, `details` the sentence.
    `thoughts` has the columns prompt_id, texts, n_tokens, ended.
    """

    rows: pl.DataFrame
    thoughts: pl.DataFrame
    failed: Mapping[str, str]
    details: Mapping[str, str]


def request(
    prompt_id: str, asked: str, prompt: str | Sequence[Mapping[str, str]], body: Mapping[str, Any]
) -> dict[str, Any]:
    """A line of a file of requests: a text to be continued, or the turns of a chat.

    >>> request("P36.1.0", "zero-shot, seed 0", "Q: Where?", {"model": "m"})["custom_id"]
    'P36.1.0 | zero-shot, seed 0'
    """
    chat = not isinstance(prompt, str)
    return {
        "custom_id": f"{prompt_id}{_SEPARATOR}{asked}",
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
        return {"custom_id", "response"} <= parse(line).keys()
    except ValueError:
        return False


def answers(lines: Iterable[str], *, thinks: bool = False) -> Answers:
    """The answers in a batch's output, read as those to a request; `thinks`: the model may.

    Raises:
        InputError: a line is none of an output, or its request was not written here.
    """
    rows, thoughts, failed, details = [], [], {}, {}
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        place = f"line {number} (counted from 0)"
        if not is_output(line):
            raise InputError(f"{place} is none of a batch's output; fetch it again.")
        output = parse(line)
        prompt_id, separator, question = str(output.custom_id).partition(_SEPARATOR)
        if not separator:
            raise InputError(
                f"{place} answers {output.custom_id!r}, which is no custom_id of "
                "`factsweep prompts --batch`; give the output of such a file."
            )
        try:
            response = as_object(output.response)
            body, status = as_object(response.body), response.get("status_code", 200)
            choices = body.choices if isinstance(body.choices, list) else []
            if output.error or status != 200 or not choices:
                code = str(as_object(output.error).code or f"status {status}")
                message = quote(output.error or response)
                raise NoAnswerError(code, f"the request failed: {message}", Usage(0, 0))
            choice, usage = as_object(choices[0]), parse_usage(body) or Usage(0, 0)
            answer = read(choice, usage, chat="message" in choice, thinks=thinks)
        except NoAnswerError as error:
            failed[prompt_id], details[prompt_id] = error.reason, str(error)
            continue
        rows.append((prompt_id, question, answer.text))
        if answer.thought:
            thoughts.append((prompt_id, [answer.thought], [usage.thought], ["unknown"]))
    schema = empty("thoughts").schema
    return Answers(
        pl.DataFrame(rows, schema=_SCHEMA, orient="row"),
        pl.DataFrame(thoughts, schema=schema, orient="row"),
        failed,
        details,
    )
