"""A language model as a judge of continuations, at any OpenAI-compatible endpoint."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from factsweep.operators.prompts.judge import judge_prompt, verdict


@dataclass(frozen=True)
class Judge:
    """Asks about each continuation once, several at a time; `ask` turns a prompt into an answer."""

    ask: Callable[[str], str]
    n_at_once: int = 8

    def __call__(self, asked: Sequence[tuple[str, Sequence[str], str]]) -> list[float | None]:
        """1 (correct), 0 (incorrect) or null (no verdict) of each cloze, labels and continuation.

        Raises:
            InputError: the endpoint does not answer.
        """
        prompts = [judge_prompt(*each) for each in asked]
        distinct = list(dict.fromkeys(prompts))
        with ThreadPoolExecutor(self.n_at_once) as pool:
            answers = dict(zip(distinct, pool.map(self.ask, distinct), strict=True))
        return [verdict(answers[prompt]) for prompt in prompts]
