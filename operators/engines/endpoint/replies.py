"""What a server behind an endpoint says, read as the answer of an engine of ours."""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from factsweep.operators.engines.answer_text import cut_at_stops, split_thought, strip_prompt
from factsweep.operators.engines.endpoint.reply import (
    Content,
    Reply,
    as_object,
    quote,
    read_content,
)
from factsweep.operators.engines.protocol import Answer, Completion, Request, Thought
from factsweep.operators.prompts.estimate import Estimate

ANY = "any"  # a revision: whatever the server has
_BROKEN_OFF = ("abort", "error", "cancelled")  # why an answer ended that is no whole one


class Usage(NamedTuple):
    """Tokens as the server counts them."""

    prompt: int
    output: int
    cached: int = 0
    thought: int = 0  # of the output's, where the server tells

    def __add__(self, other: Any) -> "Usage":
        return Usage(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class NoAnswerError(Exception):
    """A reply in which there is no answer: why, what is said of it, what it cost, and the fix."""

    def __init__(self, reason: str, detail: str, usage: Usage, fix: str = "") -> None:
        super().__init__(detail)
        self.reason, self.usage, self.fix = reason, usage, fix


@dataclass(frozen=True)
class Replies:
    """Reads the replies of one server, of a model that is asked for; `chat`: to messages."""

    model: str
    revision: str
    chat: bool
    _estimate: Estimate = field(default_factory=Estimate)

    def answer(self, request: Request, reply: Reply, left_out: Set[str]) -> Answer:
        """The answer in a reply; `left_out` is what was not asked for, since it is not taken.

        It has fewer completions than were asked for where the server gives fewer.

        Raises:
            NoAnswerError: there is none in it, or there are too many.
        """
        usage, n = self.usage(request, reply), len(reply.choices)
        served = self.served(reply, usage)
        if n > request.sampling.n:
            detail = f"{n} answers in place of {request.sampling.n}"
            raise NoAnswerError("bad_answer", detail, usage)
        share = Usage(usage.prompt, (usage.output - usage.thought) // n, 0, usage.thought // n)
        prompt = [turn["content"] for turn in request.turns] or [request.text]
        readings = [
            read(choice, usage, chat=self.chat, thinks=request.thinking is not None, prompt=prompt)
            for choice in reply.choices
        ]
        completions = tuple(
            self._completion(request, choice, reading, share)
            for choice, reading in zip(reply.choices, readings, strict=True)
        )
        return Answer(
            request.request_id,
            completions,
            usage.prompt,
            usage.cached,
            usage.output,
            served,
            tuple(_lacking(request, completions, left_out)),
            n_prompts_removed=sum(reading.is_prompt_removed for reading in readings),
        )

    def usage(self, request: Any, reply: Reply) -> Usage:
        """What the server counts; an estimate, where it counts nothing."""
        if (usage := counted(reply)) is not None:
            return usage
        if not isinstance(request, Request):
            return Usage(len(request.token_ids), 1)
        texts = [_all_text(choice, chat=self.chat) for choice in reply.choices]
        token_ids = self._estimate([request.text, *texts]).input_ids
        return Usage(len(token_ids[0]), sum(map(len, token_ids[1:])))

    def served(self, reply: Reply, usage: Usage) -> str:
        """What the server says it answered with: a model, and its fingerprint if it tells one.

        Raises:
            NoAnswerError: it is not what was asked for.
        """
        model, fingerprint = str(reply.model or self.model), str(reply.system_fingerprint or "")
        names = " ".join(filter(None, (model, fingerprint)))
        is_any = self.revision == ANY
        if not (is_same(self.model, model) if is_any else self.revision in (model, fingerprint)):
            wanted = self.model if is_any else self.revision
            revision = shlex.quote(f"model.revision={model if is_any else fingerprint or model}")
            raise NoAnswerError(
                "other_model",
                f"{names} answered in place of {wanted}",
                usage,
                f"if that is the model you mean, give {revision}; else correct the address or the "
                "model's name",
            )
        return names

    def _completion(
        self, request: Request, choice: Reply, reading: "Reading", share: Usage
    ) -> Completion:
        """An answer as an engine of ours would give it: without what ended it."""
        finish = str(choice.finish_reason)
        text = cut_at_stops(reading.text, request.sampling.stop)
        thought = Thought(reading.thought, share.thought, "unknown") if reading.thought else None
        n_tokens = max(0, share.output - (finish == "stop"))
        logprobs = None
        if request.sampling.logprobs and not reading.is_prompt_removed:
            logprobs = self._logprobs(choice)
        logprob = None if logprobs is None else math.fsum(logprobs[:n_tokens])
        return Completion(text, n_tokens, logprob, finish, thought)

    def _logprobs(self, choice: Reply) -> list[float] | None:
        """The log-probability of each token, where the server gives them."""
        logprobs = as_object(choice.logprobs).token_logprobs
        if self.chat:
            tokens = as_object(choice.logprobs).content
            logprobs = [as_object(token).logprob for token in tokens or ()] or None
        is_whole = isinstance(logprobs, list) and all(isinstance(n, int | float) for n in logprobs)
        return logprobs if is_whole else None


class Reading(NamedTuple):
    """An answer, the thought before it (empty: none), and whether a prompt was removed."""

    text: str
    thought: str
    is_prompt_removed: bool = False


def read(
    choice: Reply, usage: Usage, *, chat: bool, thinks: bool, prompt: Sequence[str] = ()
) -> Reading:
    """The answer in a choice of a reply, with what follows a stop.

    `thinks`: a thought in its text is taken out; `prompt`: what the text may begin with.

    Raises:
        NoAnswerError: the server, or the model, will not say.
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
        raise NoAnswerError("no_text", _why_no_text(choice, thought, usage), usage)
    return Reading(text.lstrip() if thought else text, thought, is_prompt_removed)


def _content(choice: Reply, usage: Usage, *, chat: bool) -> Content:
    """The content of a choice, with a thought that is kept apart.

    Raises:
        NoAnswerError: it is none of what servers put there.
    """
    message = choice if not chat else Reply() if choice.message is None else choice.message
    try:
        if not isinstance(message, Reply):
            raise ValueError(f"the message is no object: {quote(message)}")
        content = read_content(message.content if chat else message.text)
    except ValueError as error:
        raise NoAnswerError("unknown_content", str(error), usage) from error
    if not chat:
        return content
    thoughts = (_thought(value) for value in (message.reasoning_content, message.reasoning))
    thought = next(filter(None, thoughts), content.thought)
    return Content(content.text, thought, str(message.refusal or content.refusal))


def _all_text(choice: Reply, *, chat: bool) -> str:
    """Everything that was written in a choice, whatever its layout."""
    try:
        content = _content(choice, Usage(0, 0), chat=chat)
    except NoAnswerError as error:
        return str(error)
    return f"{content.thought}{content.text or ''}"


def _thought(value: Any) -> str:
    """A thought in any layout; it is kept, and never measured."""
    try:
        content = read_content(value)
    except ValueError:
        return quote(value)
    return content.thought or content.text or ""


def counted(reply: Any) -> Usage | None:
    """The tokens that a reply says it took; null: it does not say."""
    usage = as_object(as_object(reply).usage)
    if not isinstance(usage.prompt_tokens, int | float):
        return None
    prompt, total = _number(usage.prompt_tokens), _number(usage.total_tokens)
    cached = _number(as_object(usage.prompt_tokens_details).cached_tokens)
    thought = _number(as_object(usage.completion_tokens_details).reasoning_tokens)
    # Some leave a thought out of an answer's tokens, and not out of the sum that they charge.
    output = max(_number(usage.completion_tokens), total - prompt)
    return Usage(prompt, output, cached, thought)


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0


def _why_no_text(choice: Reply, thought: str, usage: Usage) -> str:
    if not thought and not usage.thought:
        return f"the reply has no text: {quote(choice)}"
    long = f"{len(thought):,} characters" if thought else f"{usage.thought:,} tokens"
    is_cut = choice.finish_reason == "length"
    ended = "until its tokens were used up" if is_cut else "and said nothing"
    return (
        f"the model thought ({long}) {ended}; switch thinking off "
        "(model.thinking=off, or the server's own switch in model.engine)"
    )


def _lacking(
    request: Request, completions: Iterable[Completion], left_out: Set[str]
) -> Iterator[str]:
    """What was wanted, and the server does not do."""
    if request.sampling.logprobs and any(each.logprob is None for each in completions):
        yield "logprobs"
    if request.seed is not None and "seed" in left_out:
        yield "seed"


def is_same(asked: str, found: str) -> bool:
    """Whether a server that names a model means the one that was asked for.

    Servers add a version, or leave out who made the model.

    >>> is_same("gpt-4o", "gpt-4o-2024-08-06"), is_same("meta/llama-3", "llama-3")
    (True, True)
    >>> is_same("gpt-4o", "gpt-4o-mini"), is_same("gpt-4o", "gpt-3.5-turbo")
    (False, False)
    """
    mine, theirs = (name.rstrip("/").rpartition("/")[2].lower() for name in (asked, found))
    version = re.compile(re.escape(mine) + r"(?:[-@:]v?\d[\d.\-]*(?:-\w+)?)?")
    return version.fullmatch(theirs) is not None
