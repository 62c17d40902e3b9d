"""What a change of model or setting does: runs that differ in one thing, prompt by prompt."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import permutations

import polars as pl

from operators.metrics.comparing.setting_effect import EFFECT, setting_effect
from operators.tables.shared.asking import Asking

_QUESTION = "style=question"
_QUESTIONS = "templates=question"


def effects(
    answers: Mapping[Asking, Callable[[], pl.DataFrame]], *, seed: int = 0, n_rounds: int = 1000
) -> pl.DataFrame:
    """Compare those runs of one benchmark that differ in one thing (`pairs`).

    Columns: effect, from, to, and those of EFFECT over all relations. `answers` loads the table of
    that name of each run.
    """
    tables = [
        setting_effect(answers[first](), answers[second](), seed=seed, n_rounds=n_rounds)
        .filter(pl.col("slice").is_null())
        .select(
            pl.lit(effect).alias("effect"),
            pl.lit(str(first)).alias("from"),
            pl.lit(str(second)).alias("to"),
            pl.exclude("slice"),
        )
        for effect, first, second in pairs(answers)
    ]
    names = dict.fromkeys(("effect", "from", "to"), pl.String())
    columns = {name: dtype for name, dtype in EFFECT.items() if name != "slice"}
    return pl.concat([pl.DataFrame(schema={**names, **columns}), *tables])


def pairs(runs: Collection[Asking]) -> Iterator[tuple[str, Asking, Asking]]:
    """The effects that can be seen, each with the run without and the run with it.

    - demonstrations: zero-shot, and another setting of the same model in the same words;
    - question style: the same model and setting in mask style (of all or of the question templates)
      and in question style;
    - instruction tuning: a model `x` and its `x-it` in the same setting.

    >>> runs = [Asking("llama2-7b", "zero-shot", None), Asking("llama2-7b", "4-random", None),
    ...     Asking("llama2-7b-it", "4-random", None)]
    >>> [(effect, str(first), str(second)) for effect, first, second in pairs(runs)]
    [('demonstrations', 'llama2-7b zero-shot', 'llama2-7b 4-random'), \
('instruction tuning', 'llama2-7b 4-random', 'llama2-7b-it 4-random')]
    """
    for one, other in permutations(runs, 2):
        same_words = _words(one) == _words(other)
        if one.model == other.model and one.setting == "zero-shot" != other.setting and same_words:
            yield "demonstrations", one, other
        if one[:2] == other[:2] and _with_question_style(one) == _parts(other):
            yield "question style", one, other
        if other.model == f"{one.model}-it" and one[1:] == other[1:]:
            yield "instruction tuning", one, other


def _parts(run: Asking) -> frozenset[str]:
    return frozenset((run.variant or "").split(",")) - {""}


def _words(run: Asking) -> frozenset[str]:
    """The variant without what only demonstrations have."""
    return frozenset(part for part in _parts(run) if not part.startswith("scope="))


def _with_question_style(run: Asking) -> frozenset[str] | None:
    parts = _parts(run)
    return None if _QUESTION in parts else parts - {_QUESTIONS} | {_QUESTION}
