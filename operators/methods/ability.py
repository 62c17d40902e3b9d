"""Abilities: the tasks of engines, and the tables that hold their answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import polars as pl

from factsweep.operators.metrics.noise import flip_rate, permutation_difference

Differ = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class Ability:
    """One task of an engine.

    `answers` is the table with one row per answered prompt, and `column` its column that holds the
    answer. `again` is the table of the prompts that are answered a second time; null: none.
    `further` are the tables of optional further answers. `differ` measures how far the first and
    the second answers to the same prompts differ, as rows of the metrics.
    """

    name: Literal["generate", "fill", "score", "prefer"]
    answers: str
    column: str
    again: str | None
    further: tuple[str, ...] = ()
    differ: Differ = flip_rate

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that an engine writes."""
        return tuple(filter(None, (self.answers, self.again, *self.further)))


def _items(preferences: pl.DataFrame) -> pl.DataFrame:
    """One row per candidate: logprob, prompt_id (of a wrong one, with its own id at the end)."""
    wrong = preferences.select("prompt_id", "distractors").explode("distractors")
    wrong = wrong.drop_nulls("distractors").unnest("distractors")
    wrong_id = pl.concat_str("prompt_id", "entity_id", separator="\x1f").alias("prompt_id")
    right = preferences.select("logprob", "prompt_id")
    return pl.concat([right, wrong.select("logprob", wrong_id)])


GENERATE = Ability("generate", "generations", "text", again="canary", further=("samples",))
FILL = Ability("fill", "masked", "token", again=None, further=("priors",))
SCORE = Ability("score", "scores", "logprob", again="rescored", differ=permutation_difference)
PREFER = Ability(
    "prefer",
    "preferences",
    "logprob",
    again="preferred_again",
    further=("beams", "chances"),
    differ=lambda first, again: permutation_difference(_items(first), _items(again)),
)

# The contents of the tables without one answer per prompt, in a few words.
BESIDE: Mapping[str, str] = MappingProxyType(
    {
        "canary": "asked again, to see whether answers change",
        "samples": "drawn at random, for confidence",
        "priors": "to prompts without a subject, for what is likely anyway",
        "rescored": "scored again in another order, to see whether scores change",
        "preferred_again": "compared again in another order, to see whether scores change",
        "beams": "continuations, for the baselines that read them",
        "chances": "of other subjects and relations, for KaRR",
    }
)

ABILITIES = (GENERATE, FILL, SCORE, PREFER)
