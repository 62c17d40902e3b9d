"""The body of a server's reply as JSON: its fields, its content, and an error that it holds."""

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

_QUOTED = 160  # characters of what is not understood
_TEXTS = ("text", "output_text", "input_text")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning_text")
_NAMES = ("code", "status_code", "statusCode", "status", "type")  # of what names an error
UNKNOWN_ERROR = 520  # stands for a body that is no answer and names no status
# What servers call errors, beside the names of HTTP's statuses.
_STATUS_BY_NAME = {
    "invalidrequest": 400,
    "contextlengthexceeded": 400,
    "contentfilter": 400,
    "invalidapikey": 401,
    "authentication": 401,
    "unauthenticated": 401,
    "permission": 403,
    "permissiondenied": 403,
    "modelnotfound": 404,
    "insufficientquota": 429,
    "ratelimit": 429,
    "ratelimitexceeded": 429,
    "server": 500,
    "overloaded": 529,
    **{re.sub("_ERROR$|_", "", status.name).lower(): status.value for status in HTTPStatus},
}


class Reply(dict[str, Any]):
    """A JSON object; a field that is absent is None.

    >>> reply = parse(b'{"choices": [{"text": "Paris"}]}')
    >>> reply.choices[0].text, reply.usage
    ('Paris', None)
    """

    def __getattr__(self, name: str) -> Any:
        """Return the field, or None."""
        return self.get(name)


class Content(NamedTuple):
    """The text of a message or a completion (null: it has none), its thought, and a refusal."""

    text: str | None
    thought: str
    refusal: str


def parse(content: bytes | str) -> Reply:
    """Parse a JSON object.

    Raises:
        ValueError: it is none.
    """
    reply = json.loads(content, object_hook=Reply)
    if not isinstance(reply, Reply):
        raise ValueError(f"{quote(reply)} is no JSON object")
    return reply


def as_object(value: Any) -> Reply:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Reply) else Reply()


def quote(value: Any) -> str:
    """The beginning of a text or a JSON value, in one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(_whole_letters(text).split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"


def _whole_letters(text: str) -> str:
    """The text with � for half a letter (a lone surrogate), which no file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_content(value: Any) -> Content:
    """Read what a server puts where a text belongs: a text, null, a part, or a list of parts.

    Raises:
        ValueError: it holds something else, whose beginning is quoted.
    """
    parts = list(_parts(value, "text", value))
    texts, thoughts, refusals = (
        [text for part_kind, text in parts if part_kind == kind]
        for kind in ("text", "thought", "refusal")
    )
    thought = "".join(thoughts) or "…" * bool(thoughts)
    return Content("".join(texts) if texts else None, thought, "".join(refusals))


def _parts(value: Any, kind: str, content: Any) -> Iterator[tuple[str, str]]:
    """Each text in a content, and whether it is `text`, `thought` or `refusal`."""
    if isinstance(value, str):
        yield kind, _whole_letters(value)
    elif isinstance(value, list):
        for part in value:
            yield from _parts(part, kind, content)
    elif isinstance(value, dict):
        yield from _parts_of(value, kind, content)
    elif value is not None:
        raise ValueError(f"the content is no text: {quote(content)}")


def _parts_of(part: dict[str, Any], kind: str, content: Any) -> Iterator[tuple[str, str]]:
    name = part.get("type", next((name for name in ("text", "value") if name in part), None))
    if name in _THOUGHTS:
        yield "thought", ""  # it was there, even if it is encrypted
        fields = (part.get(field) for field in (name, "text", "content", "summary"))
        yield from _parts(next(filter(None, fields), None), "thought", content)
    elif name in (*_TEXTS, "summary_text", "value"):
        is_thought = kind == "thought" or part.get("thought") is True
        text = part.get("text", part.get("value"))
        yield from _parts(text, "thought" if is_thought else kind, content)
    elif name == "refusal":
        yield from _parts(part.get("refusal"), "refusal", content)
    else:
        raise ValueError(f"the content is no text: {quote(content)}")


def status_of_body(content: bytes) -> int:
    """The HTTP status that the body of a reply with status 200 stands for.

    200 where it is an answer; the status that its error names; 520 where none is named.

    >>> status_of_body(b'{"error": {"message": "model is loading", "code": 503}}')
    503
    >>> status_of_body(b"<html>"), status_of_body(b'{"choices": [{"text": "Oslo"}]}')
    (520, 200)
    """
    try:
        reply = parse(content)
    except ValueError:
        return UNKNOWN_ERROR
    choices = reply.choices if isinstance(reply.choices, list) else []
    is_answer = bool(choices) and all(isinstance(choice, dict) for choice in choices)
    error = _error(reply)
    return 200 if is_answer and not error else _status(error, reply)


def message_in(content: bytes) -> str:
    """The message of an error in the body of a reply, or the beginning of the body.

    >>> message_in(b'{"error": {"message": "model is loading"}}'), message_in(b'{"detail": "no n"}')
    ('model is loading', '{"detail": "no n"}')
    """
    body = quote(content.decode(errors="replace")) or "an empty body"
    try:
        error = _error(parse(content))
    except ValueError:
        return body
    message = error.message if isinstance(error, Reply) else error
    return quote(message) if isinstance(message, str) and message.strip() else body


def _error(reply: Reply) -> Any:
    """The error in a reply, or in one of its choices."""
    choices = reply.choices if isinstance(reply.choices, list) else []
    of_choices = (choice.error for choice in choices if isinstance(choice, Reply))
    return next(filter(None, (reply.error, *of_choices)), None)


def _status(*objects: Any) -> int:
    """The HTTP status that an error names, by a number or a word."""
    for error in objects:
        values = (error.get(name) for name in _NAMES) if isinstance(error, dict) else ()
        for value in map(str, values):
            word = re.sub(r"[\W_]|error$", "", value.lower())
            status = int(value) if value.isdecimal() else _STATUS_BY_NAME.get(word, 0)
            if 400 <= status < 600:
                return status
    return UNKNOWN_ERROR
