"""A language model as a judge of continuations, at any OpenAI-compatible endpoint.

It is asked whether a continuation of a cloze names the right answer. The paper adapts a prompt of
Sun et al. 2024; the words here are our own.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

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
    said = " ".join(continuation.split())
    return f"{_INSTRUCTION}Beginning: {cloze}\nNames: {names}\nContinuation: {said}\nVerdict:"


def verdict(answer: str) -> float | None:
    """1 for correct, 0 for incorrect, null for any other answer.

    >>> verdict("Correct."), verdict(" incorrect"), verdict("I cannot say")
    (1.0, 0.0, None)
    """
    first = answer.strip().lower().lstrip("*\"'")
    if first.startswith("incorrect"):
        return 0.0
    return 1.0 if first.startswith("correct") else None


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
