"""A fake engine for tests of scheduling and faults: it knows nothing and answers at once.

Its answers are a pure function of the prompt and the seed, so that any order and any deaths must
give the same tables. No number that it produces says anything about a model.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from operators import seeds
from operators.engines.protocol import Answer, Completion, Request

_WORDS = ("Paris", "a river", "Europe", "", "the capital", "French", "1969", "guitars")


class FakeEngine:
    """Answers with one of eight fixed texts, after `seconds_per_answer`.

    `witness` is told the id of each prompt before it is answered: a test counts them there, or
    lets the engine die of one.
    """

    def __init__(
        self, seconds_per_answer: float = 0.0, witness: Callable[[str], None] | None = None
    ) -> None:
        self._seconds_per_answer = seconds_per_answer
        self._witness = witness

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer for each request, in their order."""
        for request in requests:
            if self._witness is not None:
                self._witness(request.request_id)
            if self._seconds_per_answer:
                time.sleep(self._seconds_per_answer)
            completions = tuple(self._complete(request, i) for i in range(request.sampling.n))
            yield Answer(request.request_id, completions, len(request.token_ids), 0)

    def _complete(self, request: Request, index: int) -> Completion:
        draw = seeds.key(request.token_ids, request.seed, index)
        text = _WORDS[draw % len(_WORDS)]
        logprob = -float(draw % 1000) / 1000 if request.sampling.logprobs else None
        return Completion(text, len(text.split()), logprob, "stop")
