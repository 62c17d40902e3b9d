"""Replies of a server behind an endpoint: JSON bodies, their content, their errors, and answers."""

import json
import math
import re
import shlex
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

from factsweep.operators.engines.answer_text import cut_at_stops, split_thought, strip_prompt
from factsweep.operators.engines.protocol import Answer, Completion, Request, Thought
from factsweep.operators.prompts.estimate import Estimate

ANY = "any"  # a revision: any model that the server has
_BROKEN_OFF = ("abort", "error", "cancelled")  # finish reasons of incomplete answers
_QUOTED = 160  # characters of a reply that is not understood
_TEXTS = ("text", "output_text", "input_text", "summary_text", "value")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning_text")
_STATUS_FIELDS = ("code", "status_code", "statusCode", "status", "type")
UNKNOWN_ERROR = 520  # the status of a body that is no answer and names no status
# Names that servers give to errors, in addition to the names of HTTP's statuses.
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


class Usage(NamedTuple):
    """Tokens as the server counts them; `thought` are among those of the output."""

    prompt: int
    output: int
    cached: int = 0
    thought: int = 0

    def __add__(self, other: Any) -> "Usage":
        return Usage(*(a + b for a, b in zip(self, other, strict=True)))


class NoAnswerError(Exception):
    """A reply without an answer: the reason, a sentence on it, the tokens it cost, and the fix."""

    def __init__(self, reason: str, detail: str, usage: Usage, fix: str = "") -> None:
        super().__init__(detail)
        self.reason, self.usage, self.fix = reason, usage, fix


class ParsedAnswer(NamedTuple):
    """An answer, the thought before it (empty: none), and whether a prompt was removed."""

    text: str
    thought: str
    is_prompt_removed: bool = False


def parse(content: bytes | str) -> Reply:
    """Parse a JSON object.

    Raises:
        ValueError: the content is no JSON object.
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
    line = " ".join(_without_surrogates(text).split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"


def _without_surrogates(text: str) -> str:
    """The text with � for a lone surrogate, which no file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_content(content: Any) -> Content:
    """Read the value of a text field: a text, null, a part, or a list of parts.

    Raises:
        ValueError: it holds something else, whose beginning is quoted.
    """
    texts: dict[str, list[str]] = {"text": [], "thought": [], "refusal": []}
    try:
        for kind, text in _parts(content, "text"):
            texts[kind].append(text)
    except ValueError as error:
        raise ValueError(f"the content is no text: {quote(content)}") from error
    thought = "".join(texts["thought"]) or "…" * bool(texts["thought"])
    return Content(
        "".join(texts["text"]) if texts["text"] else None, thought, "".join(texts["refusal"])
    )


def _parts(value: Any, kind: str) -> Iterator[tuple[str, str]]:
    """Each text in a content, with its kind: `text`, `thought` or `refusal`."""
    if isinstance(value, str):
        yield kind, _without_surrogates(value)
    elif isinstance(value, list):
        for part in value:
            yield from _parts(part, kind)
    elif isinstance(value, dict):
        name = value.get("type", next((name for name in ("text", "value") if name in value), None))
        if name in _THOUGHTS:
            yield "thought", ""  # counts as a thought even if it is encrypted
            fields = (value.get(field) for field in (name, "text", "content", "summary"))
            yield from _parts(next(filter(None, fields), None), "thought")
        elif name in _TEXTS:
            is_thought = value.get("thought") is True
            yield from _parts(
                value.get("text", value.get("value")), "thought" if is_thought else kind
            )
        elif name == "refusal":
            yield from _parts(value.get("refusal"), "refusal")
        else:
            raise ValueError(name)
    elif value is not None:
        raise ValueError(value)


def status_of_body(content: bytes) -> int:
    """The HTTP status that the body of a reply with status 200 stands for.

    200 for an answer, else the status that its error names, or 520.

    >>> status_of_body(b'{"error": {"message": "model is loading", "code": 503}}')
    503
    >>> status_of_body(b"<html>"), status_of_body(b'{"choices": [{"text": "Oslo"}]}')
    (520, 200)
    """
    try:
        reply = parse(content)
    except ValueError:
        return UNKNOWN_ERROR
    choices, error = reply.choices if isinstance(reply.choices, list) else [], _error(reply)
    if choices and not error and all(isinstance(choice, dict) for choice in choices):
        return 200
    for fields in (as_object(error), reply):
        for value in (str(fields.get(name)) for name in _STATUS_FIELDS):
            name = re.sub(r"[\W_]|error$", "", value.lower())
            status = int(value) if value.isdecimal() else _STATUS_BY_NAME.get(name, 0)
            if 400 <= status < 600:
                return status
    return UNKNOWN_ERROR


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
    choices = reply.choices if isinstance(reply.choices, list) else []
    return next(filter(None, (reply.error, *(as_object(choice).error for choice in choices))), None)


@dataclass(frozen=True)
class Replies:
    """Reads the replies of one server, which is asked for a model; `chat`: by messages."""

    model: str
    revision: str
    chat: bool
    _estimate: Estimate = field(default_factory=Estimate)

    def answer(self, request: Request, reply: Reply, left_out: Set[str]) -> Answer:
        """The answer in a reply; `left_out` names parameters that the server does not take.

        It has fewer completions than requested where the server gives fewer.

        Raises:
            NoAnswerError: the reply has none, or too many.
        """
        usage, n = self.usage(request, reply), len(reply.choices)
        served = self.check_served_model(reply, usage)
        if n > request.sampling.n:
            detail = f"{n} answers in place of {request.sampling.n}"
            raise NoAnswerError("bad_answer", detail, usage)
        share = Usage(usage.prompt, (usage.output - usage.thought) // n, 0, usage.thought // n)
        prompt = [turn["content"] for turn in request.turns] or [request.text]
        thinks = request.thinking is not None
        completions, n_prompts_removed = [], 0
        for choice in reply.choices:
            reading = read(choice, usage, chat=self.chat, thinks=thinks, prompt=prompt)
            completions.append(self._completion(request, choice, reading, share))
            n_prompts_removed += reading.is_prompt_removed
        without = []
        if request.sampling.logprobs and any(
            completion.logprob is None for completion in completions
        ):
            without.append("logprobs")
        if request.seed is not None and "seed" in left_out:
            without.append("seed")
        return Answer(
            request.request_id,
            tuple(completions),
            usage.prompt,
            usage.cached,
            usage.output,
            served,
            tuple(without),
            n_prompts_removed=n_prompts_removed,
        )

    def usage(self, request: Any, reply: Reply) -> Usage:
        """The server's count of tokens, or an estimate where it counts none."""
        if (usage := parse_usage(reply)) is not None:
            return usage
        if not isinstance(request, Request):
            return Usage(len(request.token_ids), 1)
        texts = [request.text]
        for choice in reply.choices:
            try:
                content = _content(choice, Usage(0, 0), chat=self.chat)
                texts.append(f"{content.thought}{content.text or ''}")
            except NoAnswerError as error:
                texts.append(str(error))
        n_tokens = [len(token_ids) for token_ids in self._estimate(texts).input_ids]
        return Usage(n_tokens[0], sum(n_tokens[1:]))

    def check_served_model(self, reply: Reply, usage: Usage) -> str:
        """The model that the server names, and its fingerprint if there is one.

        Raises:
            NoAnswerError: another model was requested.
        """
        model, fingerprint = str(reply.model or self.model), str(reply.system_fingerprint or "")
        names = " ".join(filter(None, (model, fingerprint)))
        is_any = self.revision == ANY
        if not (is_same(self.model, model) if is_any else self.revision in (model, fingerprint)):
            requested = self.model if is_any else self.revision
            revision = shlex.quote(f"model.revision={model if is_any else fingerprint or model}")
            raise NoAnswerError(
                "other_model",
                f"{names} answered in place of {requested}",
                usage,
                f"if that is the model you mean, give {revision}; else correct the address or the "
                "model's name",
            )
        return names

    def _completion(
        self, request: Request, choice: Reply, reading: ParsedAnswer, share: Usage
    ) -> Completion:
        finish = str(choice.finish_reason)
        n_tokens = max(0, share.output - (finish == "stop"))
        fields, logprob = as_object(choice.logprobs), None
        logprobs = fields.token_logprobs
        if self.chat:
            logprobs = [as_object(token).logprob for token in fields.content or ()] or None
        is_whole = isinstance(logprobs, list) and all(isinstance(n, int | float) for n in logprobs)
        if is_whole and request.sampling.logprobs and not reading.is_prompt_removed:
            logprob = math.fsum(logprobs[:n_tokens])
        thought = Thought(reading.thought, share.thought, "unknown") if reading.thought else None
        text = cut_at_stops(reading.text, request.sampling.stop)
        return Completion(text, n_tokens, logprob, finish, thought)


def read(
    choice: Reply, usage: Usage, *, chat: bool, thinks: bool, prompt: Sequence[str] = ()
) -> ParsedAnswer:
    """The answer in a choice of a reply, not yet cut at a stop.

    `thinks`: a thought in its text is taken out; `prompt`: parts that the text may begin with.

    Raises:
        NoAnswerError: the server, or the model, gives no answer.
    """
    finish = str(choice.finish_reason)
    if finish == "content_filter":
        raise NoAnswerError("content_filter", "the server's filter ended the answer", usage)
    if finish in _BROKEN_OFF:
        detail = f"the server broke the answer off ({finish}): {quote(choice)}"
        raise NoAnswerError("broken_off", detail, usage)
    content, thought, refusal = _content(choice, usage, chat=chat)
    if refusal:
        raise NoAnswerError("refused", refusal, usage)
    text = strip_prompt(content or "", *prompt)
    is_prompt_removed = len(text) < len(content or "")
    if thinks and not thought:
        parts = split_thought(text)
        if parts is None:
            detail = f"the model thought ({len(text):,} characters) until its tokens were used up"
            raise NoAnswerError("thought_not_ended", detail, usage)
        thought, text = parts
    if content is None or ((chat or thought) and not text.strip()):
        detail = f"the reply has no text: {quote(choice)}"
        if thought or usage.thought:
            size = f"{len(thought):,} characters" if thought else f"{usage.thought:,} tokens"
            ending = "until its tokens were used up" if finish == "length" else "and said nothing"
            detail = (
                f"the model thought ({size}) {ending}; switch thinking off (model.thinking=off, or "
                "the server's own switch in model.engine)"
            )
        raise NoAnswerError("no_text", detail, usage)
    return ParsedAnswer(text.lstrip() if thought else text, thought, is_prompt_removed)


def _content(choice: Reply, usage: Usage, *, chat: bool) -> Content:
    """The content of a choice, with a thought from a field of its own."""
    message = choice if not chat else Reply() if choice.message is None else choice.message
    try:
        if not isinstance(message, Reply):
            raise ValueError(f"the message is no object: {quote(message)}")
        content = read_content(message.content if chat else message.text)
    except ValueError as error:
        raise NoAnswerError("unknown_content", str(error), usage) from error
    if not chat:
        return content
    thought = _thought(message.reasoning_content) or _thought(message.reasoning) or content.thought
    return Content(content.text, thought, str(message.refusal or content.refusal))


def _thought(value: Any) -> str:
    try:
        content = read_content(value)
    except ValueError:
        return quote(value)
    return content.thought or content.text or ""


def parse_usage(reply: Any) -> Usage | None:
    """The tokens that a reply counts; null: it counts none."""
    usage = as_object(as_object(reply).usage)
    if not isinstance(usage.prompt_tokens, int | float):
        return None
    prompt, total = _number(usage.prompt_tokens), _number(usage.total_tokens)
    cached = _number(as_object(usage.prompt_tokens_details).cached_tokens)
    thought = _number(as_object(usage.completion_tokens_details).reasoning_tokens)
    # Some servers leave a thought out of the completion's tokens, but not out of the billed total.
    output = max(_number(usage.completion_tokens), total - prompt)
    return Usage(prompt, output, cached, thought)


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0


def is_same(requested: str, served: str) -> bool:
    """Whether two names mean one model: servers add a version, or leave out the model's maker.

    >>> is_same("gpt-4o", "gpt-4o-2024-08-06"), is_same("meta/llama-3", "llama-3")
    (True, True)
    >>> is_same("gpt-4o", "gpt-4o-mini"), is_same("gpt-4o", "gpt-3.5-turbo")
    (False, False)
    """
    expected, other = (name.rstrip("/").rpartition("/")[2].lower() for name in (requested, served))
    version = re.compile(re.escape(expected) + r"(?:[-@:]v?\d[\d.\-]*(?:-\w+)?)?")
    return version.fullmatch(other) is not None
