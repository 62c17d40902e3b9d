"""Abilities: what a method asks of an engine, and the tables that hold what the engine says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import polars as pl

from factsweep.operators.metrics.noise import flip_rate, permutation_difference

Differ = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class Ability:
    """One thing that an engine can do.

    `answers` is the table with one row per answered prompt, and `column` its column that holds the
    answer. `again` is the table of the prompts that are answered a second time; null: there is
    none. `further` are the tables of what may be asked in addition to the answers. `differ` says
    how far the first and the second answers to the same prompts differ, as rows of the metrics.
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


def _of_candidates(first: pl.DataFrame, again: pl.DataFrame) -> pl.DataFrame:
    """How far two scorings of the same candidates, in other orders, lie apart."""
    return permutation_difference(*map(_items, (first, again)))


def _items(preferences: pl.DataFrame) -> pl.DataFrame:
    """One row per candidate: logprob, prompt_id (that of a wrong one ends with its own id)."""
    wrong = preferences.select("prompt_id", "distractors").explode("distractors")
    wrong = wrong.drop_nulls("distractors").unnest("distractors")
    named = pl.concat_str("prompt_id", "entity_id", separator="\x1f").alias("prompt_id")
    return pl.concat([preferences.select("logprob", "prompt_id"), wrong.select("logprob", named)])


GENERATE = Ability("generate", "generations", "text", again="canary", further=("samples",))
FILL = Ability("fill", "masked", "token", again=None, further=("priors",))
SCORE = Ability("score", "scores", "logprob", again="rescored", differ=permutation_difference)
PREFER = Ability(
    "prefer",
    "preferences",
    "logprob",
    again="preferred_again",
    further=("beams", "chances"),
    differ=_of_candidates,
)

# What tables hold that are not those of one answer to each prompt, in a few words.
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
