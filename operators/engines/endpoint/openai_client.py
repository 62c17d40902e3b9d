"""Any OpenAI-compatible chat endpoint as a callable; the key, and errors without it.

The client is OpenAI's own (`openai`); it sends a request again that timed out, was turned away for
now (429) or failed on the server (5xx), after a pause that grows and varies, or that the server
names (Retry-After).
"""

import os
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError

if TYPE_CHECKING:
    from openai import OpenAI

KEY = "OPENAI_API_KEY"
_SHOWN = 300  # characters of what a server says


def key(variable: str = KEY) -> str:
    """The key that an environment variable holds; empty if there is none.

    With `_FILE` behind the variable's name it is that of the path of a file, as a pod mounts one.

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


def without(secret: str, said: object) -> str:
    r"""What a server said, without a key that it may repeat, in one line.

    >>> without("sk-123", "Incorrect key\n sk-123.")
    'Incorrect key <key>'
    """
    text = " ".join(str(said).split())
    text = text.replace(secret, "<key>") if secret else text
    return text[:_SHOWN].rstrip(".")


def refusal(model: str, url: str, said: str) -> InputError:
    """The sentence for whoever can correct the address, the name or the key."""
    return InputError(
        f"model {model} at {url} did not answer ({said}); correct the address, the model's name or "
        "the key, or try again later."
    )


@dataclass(frozen=True)
class OpenAIChat:
    """Answers a prompt, which is sent as the one message of a user.

    `base_url` ends where `/chat/completions` begins. Without a `temperature` the endpoint takes its
    own. A call is made again `max_retries` times.
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
            InputError: the endpoint cannot be reached, refuses, or gives no text; the message has
                its address, and never the key.
        """
        from openai import OpenAIError, omit

        temperature = omit if self.temperature is None else self.temperature
        try:
            answer = self._client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": prompt}],
                temperature=temperature,
            )
        except (OpenAIError, ValueError) as error:  # the latter where an answer is no JSON
            # Not `from error`: a server may repeat the key in what it says.
            raise refusal(self.model, self.base_url, without(self.api_key, error)) from None
        # Servers that only resemble OpenAI's may leave out what its client takes for granted.
        choices = getattr(answer, "choices", None)
        text = choices[0].message.content if choices else None
        if not text:
            raise InputError(
                f"model {self.model} at {self.base_url} gave no text; look at the server's log."
            )
        return str(text)

    @cached_property
    def _client(self) -> "OpenAI":
        from openai import OpenAI

        client = OpenAI(
            base_url=self.base_url,
            # A self-hosted server may need no key, but the client must send some text.
            api_key=self.api_key or "none",
            timeout=self.timeout_s,
            max_retries=self.max_retries,
        )
        weakref.finalize(self, client.close)  # else its connections stay open
        return client
