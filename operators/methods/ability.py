"""Abilities: what a method asks of an engine, and the tables that hold what the engine says."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Ability:
    """One thing that an engine can do.

    `answers` is the table with one row per answered prompt, and `column` its column that holds the
    answer. `again` is the table of the prompts that are answered a second time; null: there is
    none. `further` are the tables of what may be asked in addition to the answers.
    """

    name: Literal["generate", "fill", "score", "prefer"]
    answers: str
    column: str
    again: str | None
    further: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that an engine writes."""
        return tuple(filter(None, (self.answers, self.again, *self.further)))


GENERATE = Ability("generate", "generations", "text", again="canary", further=("samples",))
FILL = Ability("fill", "masked", "token", again=None, further=("priors",))
SCORE = Ability("score", "scores", "logprob", again="rescored")
PREFER = Ability(
    "prefer", "preferences", "logprob", again="preferred_again", further=("beams", "chances")
)

ABILITIES = (GENERATE, FILL, SCORE, PREFER)
