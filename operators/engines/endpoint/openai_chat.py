"""Any OpenAI-compatible chat endpoint as a callable: prompt → text."""

import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from factsweep.operators.engines.endpoint.openai_client import refusal, without
from factsweep.operators.errors import InputError

if TYPE_CHECKING:
    from openai import OpenAI


@dataclass(frozen=True)
class OpenAIChat:
    """Answers a prompt, which is sent as the one message of a user.

    `base_url` ends where `/chat/completions` begins. Without a `temperature` the endpoint takes its
    own. Calls that time out, that are turned away for now (429) or fail on the server (5xx) are
    made again, `max_retries` times, after a growing pause.
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
