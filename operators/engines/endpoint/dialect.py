"""What a server takes of OpenAI's protocol when it is asked for answers, learned as it refuses."""

import re
import sys
from collections.abc import Mapping
from typing import Any

from factsweep.operators.engines.protocol import Request

_OPTIONAL = ("logprobs", "seed")  # what a request may do without, where a server does not know it


class Dialect:
    """How a server is asked for answers of a model; `chat`: by messages."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self.left_out: set[str] = set()
        self._model, self._chat = model, chat
        self._max_tokens = "max_tokens"

    def parameters(self, request: Request) -> dict[str, Any]:
        """What is asked; nothing that says what a server does anyway."""
        sampling = request.sampling
        asked: dict[str, Any] = {
            "model": self._model,
            self._max_tokens: request.most_output_tokens // sampling.n,
            "temperature": sampling.temperature,
        }
        if self._chat:
            asked["messages"] = request.turns or [{"role": "user", "content": request.text}]
        else:
            asked["prompt"] = request.text
        if sampling.stop and request.thinking is None:  # else it would end a thought
            asked["stop"] = list(sampling.stop)
        if sampling.n > 1:
            asked["n"] = sampling.n
        if sampling.top_p < 1:
            asked["top_p"] = sampling.top_p
        if sampling.logprobs:
            asked["logprobs"] = True if self._chat else 1
        if request.seed is not None:
            asked["seed"] = request.seed
        return {name: value for name, value in asked.items() if name not in self.left_out}

    def learns(self, said: str, asked: Mapping[str, Any]) -> bool:
        """Whether what the server does not take can be left out, or has another name."""
        if "max_completion_tokens" in said and "max_tokens" in asked:
            self._max_tokens = "max_completion_tokens"
            return True
        for name in _OPTIONAL:
            if name in asked and re.search(rf"\b{name}\b", said):
                if name not in self.left_out:
                    self.left_out.add(name)
                    sys.stderr.write(f"{self._model} takes no {name}: none are asked for.\n")
                return True
        return False
