"""An OpenAI-compatible chat endpoint as a callable; the judge; the key, and errors without it."""

import json
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factsweep.operators.engines.endpoint.rate_limited_http import error_message, set_status_of_body
from factsweep.operators.engines.endpoint.response_parsing import (
    UNKNOWN_ERROR,
    NoAnswerError,
    Usage,
    parse,
    read,
)
from factsweep.operators.errors import InputError

if TYPE_CHECKING:
    from openai import OpenAI


KEY = "OPENAI_API_KEY"
FIX = "correct the address, the model's name or the key, or try again later"
_MAX_MESSAGE = 300  # characters of a server's message


def key(variable: str = KEY) -> str:
    """The key in an environment variable or in the file that its `_FILE` names; empty: no key.

    Raises:
        InputError: the file cannot be read.
    """
    if value := os.environ.get(variable, ""):
        return value
    if not (path := os.environ.get(f"{variable}_FILE", "")):
        return ""
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{variable}_FILE={path} cannot be read; mount the file there.") from error


def hide_key(secret: str, message: object) -> str:
    """A server's message in one line, without a key that it may repeat."""
    text = " ".join(str(message).split())
    text = text.replace(secret, "<key>") if secret else text
    return text[:_MAX_MESSAGE].rstrip(".")


def refusal(
    model: str, url: str, message: str, fix: str = FIX, error: type[InputError] = InputError
) -> InputError:
    """The sentence on a server that does not answer."""
    return error(f"model {model} at {url} did not answer ({message}); {fix}.")


@dataclass(frozen=True)
class OpenAIChat:
    """Answers a prompt, which is sent as the one message of a user.

    `base_url` ends before `/chat/completions`. Without a `temperature` the endpoint uses its own.
    """

    base_url: str
    model: str
    api_key: str = field(repr=False)
    timeout_s: float = 120.0
    max_retries: int = 5
    temperature: float | None = None

    def __call__(self, prompt: str) -> str:
        """Ask the model.

        Raises:
            InputError: the endpoint cannot be reached, refuses, or gives no text.
        """
        import httpx2
        from openai import APIStatusError, OpenAIError

        body = {"model": self.model, "messages": [{"role": "user", "content": prompt}]}
        options = {} if self.temperature is None else {"temperature": self.temperature}
        try:
            response = self._client.post(
                "/chat/completions", cast_to=httpx2.Response, body={**body, **options}
            )
            reply = parse(response.content)
            return read(reply.choices[0], Usage(0, 0), chat=True, thinks=False).text
        except NoAnswerError as error:
            reason = hide_key(self.api_key, error)
        except APIStatusError as error:
            reason = hide_key(self.api_key, error_message(error.response))
            if error.status_code != UNKNOWN_ERROR:
                raise refusal(self.model, self.base_url, reason) from None
        except OpenAIError as error:
            # Not `from error`: a server may repeat the key in its message.
            raise refusal(self.model, self.base_url, hide_key(self.api_key, error)) from None
        raise InputError(
            f"model {self.model} at {self.base_url} gave no text ({reason}); look at the "
            "server's log."
        )

    @cached_property
    def _client(self) -> "OpenAI":
        from openai import DefaultHttpxClient, OpenAI

        class Client(DefaultHttpxClient):
            def send(self, request: Any, **options: Any) -> Any:
                response = super().send(request, **options)
                if set_status_of_body(response) and response.status_code == UNKNOWN_ERROR:
                    response.headers["x-should-retry"] = "false"
                return response

        client = OpenAI(
            base_url=self.base_url,
            # A self-hosted server may need no key, but the client must send some text.
            api_key=self.api_key or "none",
            timeout=self.timeout_s,
            max_retries=self.max_retries,
            http_client=Client(timeout=self.timeout_s),
        )
        weakref.finalize(self, client.close)  # else its connections stay open
        return client


_INSTRUCTION = """\
A language model was given the beginning of a sentence and wrote how it goes on. Decide whether \
what it wrote names the entity that is asked for. You are given all names under which that entity \
is known. Another wording, an abbreviation or a longer description of the same entity is correct. \
Another entity, one that is broader or narrower, or a text that names none is incorrect. Answer \
with one word: correct or incorrect.

Beginning: The highest mountain of Japan is
Names: ["Mount Fuji", "Fujisan"]
Continuation: Mt. Fuji, which is 3,776 metres high.
Verdict: correct

Beginning: The highest mountain of Japan is
Names: ["Mount Fuji", "Fujisan"]
Continuation: a popular place for hikers.
Verdict: incorrect

Beginning: Marie Curie was born in
Names: ["Warsaw", "Warszawa"]
Continuation: Poland.
Verdict: incorrect

"""


def judge_prompt(cloze: str, labels: Sequence[str], continuation: str) -> str:
    """The question to a judge about one continuation.

    >>> print(*judge_prompt("Rome lies in", ["Italy"], " the south").splitlines()[-4:], sep="; ")
    Beginning: Rome lies in; Names: ["Italy"]; Continuation: the south; Verdict:
    """
    names = json.dumps(list(labels), ensure_ascii=False)
    text = " ".join(continuation.split())
    return f"{_INSTRUCTION}Beginning: {cloze}\nNames: {names}\nContinuation: {text}\nVerdict:"


def verdict(answer: str) -> float | None:
    """1 for correct, 0 for incorrect, null for any other answer."""
    first = answer.strip().lower().lstrip("*\"'")
    if first.startswith("incorrect"):
        return 0.0
    return 1.0 if first.startswith("correct") else None


@dataclass(frozen=True)
class Judge:
    """Asks about each continuation once, several at a time; `ask` turns a prompt into an answer."""

    ask: Callable[[str], str]
    n_at_once: int = 8

    def __call__(self, questions: Sequence[tuple[str, Sequence[str], str]]) -> list[float | None]:
        """1 (correct), 0 (incorrect) or null (no verdict) of each cloze, labels and continuation.

        Raises:
            InputError: the endpoint does not answer.
        """
        prompts = [judge_prompt(*question) for question in questions]
        distinct = list(dict.fromkeys(prompts))
        with ThreadPoolExecutor(self.n_at_once) as pool:
            answers = dict(zip(distinct, pool.map(self.ask, distinct), strict=True))
        return [verdict(answers[prompt]) for prompt in prompts]
