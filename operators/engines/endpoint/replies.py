"""What a server behind an endpoint says, read as the answer of an engine of ours."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from factsweep.operators.engines.protocol import Answer, Completion, Request, Thought
from factsweep.operators.prompts.chat import THOUGHT, THOUGHT_END
from factsweep.operators.prompts.estimate import Estimate

ANY = "any"  # a revision: whatever the server has


class Usage(NamedTuple):
    """Tokens as the server counts them."""

    prompt: int
    output: int
    cached: int = 0
    thought: int = 0  # of the output's, where the server tells

    def __add__(self, other: Any) -> "Usage":
        return Usage(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class NoAnswerError(Exception):
    """A reply in which there is no answer: why, what is said of it, and what it cost."""

    def __init__(self, reason: str, detail: str, usage: Usage) -> None:
        super().__init__(detail)
        self.reason, self.usage = reason, usage


@dataclass(frozen=True)
class Replies:
    """Reads the replies of one server, of a model that is asked for; `chat`: to messages."""

    model: str
    revision: str
    chat: bool
    _estimate: Estimate = field(default_factory=Estimate)

    def answer(self, request: Request, said: Any, left_out: Set[str]) -> Answer:
        """The answer in a reply; `left_out` is what was not asked for, since it is not taken.

        Raises:
            NoAnswerError: there is none in it.
        """
        usage, n = self.usage(request, said), request.sampling.n
        served = self.served(said, usage)
        if len(said.choices) != n:
            detail = f"{len(said.choices)} answers in place of {n}"
            raise NoAnswerError("bad_answer", detail, usage)
        completions = tuple(self._completion(request, each, usage) for each in said.choices)
        tokens = (usage.prompt, usage.cached, usage.output)
        lacking = tuple(_lacking(request, completions, left_out))
        return Answer(request.request_id, completions, *tokens, served, lacking)

    def usage(self, request: Any, said: Any) -> Usage:
        """What the server counts; an estimate, where it counts nothing."""
        if (usage := counted(said)) is not None:
            return usage
        if not isinstance(request, Request):
            return Usage(len(request.token_ids), 1)
        texts = [_text(each, chat=self.chat) or "" for each in said.choices]
        of = self._estimate([request.text, *texts]).input_ids
        return Usage(len(of[0]), sum(map(len, of[1:])))

    def served(self, said: Any, usage: Usage) -> str:
        """What the server says it answered with: a model, and its fingerprint if it tells one.

        Raises:
            NoAnswerError: it is not what was asked for.
        """
        model = str(getattr(said, "model", None) or self.model)
        fingerprint = getattr(said, "system_fingerprint", None)
        found = " ".join(filter(None, (model, fingerprint)))
        is_any = self.revision == ANY
        if not (is_same(self.model, model) if is_any else self.revision in (model, fingerprint)):
            wanted = self.model if is_any else self.revision
            raise NoAnswerError("other_model", f"{found} answered in place of {wanted}", usage)
        return found

    def _completion(self, request: Request, choice: Any, usage: Usage) -> Completion:
        """An answer as an engine of ours would give it: without what ended it.

        Raises:
            NoAnswerError: the server, or the model, will not say.
        """
        sampling, finish = request.sampling, str(choice.finish_reason)
        how = {"chat": self.chat, "thinks": request.thinking is not None}
        text, thought = read(choice, sampling.stop, usage, **how)
        thinks = Thought(thought, usage.thought // sampling.n, "unknown") if thought else None
        said = (usage.output - usage.thought) // sampling.n  # of thoughts that are not told, too
        n_tokens = max(0, said - (finish == "stop"))
        logprobs = self._logprobs(choice) if sampling.logprobs else None
        logprob = None if logprobs is None else math.fsum(logprobs[:n_tokens])
        return Completion(text, n_tokens, logprob, finish, thinks)

    def _logprobs(self, choice: Any) -> list[float] | None:
        """The log-probability of each token, where the server gives them."""
        if (found := getattr(choice, "logprobs", None)) is None:
            return None
        if self.chat:
            return None if found.content is None else [each.logprob for each in found.content]
        return None if found.token_logprobs is None else list(found.token_logprobs)


class Read(NamedTuple):
    """An answer without what ended it, and what was thought before it; empty: nothing."""

    text: str
    thought: str


def read(choice: Any, stops: Sequence[str], usage: Usage, *, chat: bool, thinks: bool) -> Read:
    """The answer in a choice of a reply; `thinks`: a thought in its text is cut off.

    Raises:
        NoAnswerError: the server, or the model, will not say.
    """
    finish = str(getattr(choice, "finish_reason", None))
    if finish == "content_filter":
        raise NoAnswerError("content_filter", "the server's filter ended the answer", usage)
    if chat and (refusal := getattr(choice.message, "refusal", None)):
        raise NoAnswerError("refused", str(refusal), usage)
    text, thought = _text(choice, chat=chat), _thought(choice) if chat else ""
    if thinks and not thought:
        thought, text = _parted(text or "", usage)
    if text is None or ((chat or thought) and not text.strip()):
        raise NoAnswerError("no_text", _why_no_text(thought, finish, usage), usage)
    return Read(_stopped(text.lstrip() if thought else text, stops), thought)


def _stopped(text: str, stops: Sequence[str]) -> str:
    """The text up to where it should have stopped: not all servers see to it."""
    for stop in stops:
        text = text.partition(stop)[0]
    return text


def counted(said: Any) -> Usage | None:
    """The tokens that a reply says it took; null: it does not say."""
    usage = getattr(said, "usage", None)
    n_prompt = getattr(usage, "prompt_tokens", None)
    if usage is None or n_prompt is None:
        return None
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    details = getattr(usage, "completion_tokens_details", None)
    thought = getattr(details, "reasoning_tokens", None) or 0
    # Some leave a thought out of an answer's tokens, and not out of the sum that they charge.
    behind = (getattr(usage, "total_tokens", None) or 0) - n_prompt
    output = max(getattr(usage, "completion_tokens", None) or 0, behind)
    return Usage(n_prompt, output, cached, thought)


def _text(choice: Any, *, chat: bool) -> str | None:
    text = getattr(choice.message, "content", None) if chat else getattr(choice, "text", None)
    return None if text is None else str(text)


def _thought(choice: Any) -> str:
    """What a server that takes thoughts out of answers says that the model thought."""
    found = (getattr(choice.message, name, None) for name in ("reasoning_content", "reasoning"))
    return str(next(filter(None, found), ""))


def _parted(text: str, usage: Usage) -> tuple[str, str]:
    """The thought and the answer in a text of a server that takes none out.

    Raises:
        NoAnswerError: the thought has no end.
    """
    said = re.fullmatch(rf"(?:\s*{THOUGHT})?(.*?){THOUGHT_END}(.*)", text, re.DOTALL)
    if said is not None:
        return said[2].strip() or "…", said[4]
    if re.match(rf"\s*{THOUGHT}", text):
        detail = f"the model thought ({len(text):,} characters) until its tokens were used up"
        raise NoAnswerError("thought_not_ended", detail, usage)
    return "", text


def _why_no_text(thought: str, finish: str, usage: Usage) -> str:
    if not thought and not usage.thought:
        return "the reply has no text"
    long = f"{len(thought):,} characters" if thought else f"{usage.thought:,} tokens"
    ended = "until its tokens were used up" if finish == "length" else "and said nothing"
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
