"""What two runs share: the prompts by fact, template and name, or at least the facts."""

from collections.abc import Iterable
from typing import Literal, NamedTuple, Self, get_args

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.wording import count

# What is paired: a prompt of both runs, or a fact with all the prompts that each run has of it.
Unit = Literal["prompt", "fact"]
FACT = ("relation_id", "pair_id")


class Shared(NamedTuple):
    """How much two runs share, and what the first and the second alone have.

    `own` and `other` count the prompts of the first and the second run on the facts of both.
    """

    prompts: int
    facts: int
    own: int
    other: int
    first_prompts: int
    second_prompts: int
    first_facts: int
    second_facts: int

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """All relations together."""
        return cls(*map(sum, zip((0,) * len(cls._fields), *parts, strict=True)))

    def left_out(self, unit: Unit) -> str:
        """What the first and the second alone have, for a narrow column.

        >>> Shared(72, 13, 72, 90, 0, 18, 0, 2).left_out("prompt")
        '0 and 18 prompts'
        """
        return "{:,} and {:,} {}s".format(*self._alone(unit), unit)

    def _alone(self, unit: Unit) -> tuple[int, int]:
        prompts, facts = self[4:6], self[6:8]
        return prompts if unit == "prompt" else facts

    def sentence(self, unit: Unit) -> str:
        """What was paired and what was not, in words.

        >>> Shared(72, 13, 72, 90, 0, 18, 0, 2).sentence("prompt")
        '72 prompts of 13 facts, paired by fact, template and name; not paired: 0 prompts of the \
first, 18 of the second'
        >>> Shared(0, 13, 72, 36, 72, 38, 0, 1).sentence("fact")
        '13 facts, paired by fact, with 72 prompts in the first and 36 in the second; not paired: \
0 facts of the first, 1 of the second'
        """
        paired = f"{count(self.facts, 'fact')}, paired by fact"
        if unit == "prompt":
            paired = f"{count(self.prompts, 'prompt')} of {paired}, template and name"
        else:
            own = count(self.own, "prompt")
            paired = f"{paired}, with {own} in the first and {self.other:,} in the second"
        alone, rest = self._alone(unit)
        first = count(alone, unit)
        return f"{paired}; not paired: {first} of the first, {rest:,} of the second"


def shared(first: pl.DataFrame, second: pl.DataFrame) -> Shared:
    """Count what the answers of two runs share; both need prompt_id, relation_id and pair_id."""
    n_prompts = first.join(second, on="prompt_id", how="semi").height
    own, others = (each.select(FACT) for each in in_both(first, second, "fact"))
    n_facts = own.n_unique()
    left_out = (
        *(each.height - n_prompts for each in (first, second)),
        *(each.select(FACT).n_unique() - n_facts for each in (first, second)),
    )
    return Shared(n_prompts, n_facts, own.height, others.height, *left_out)


def in_both(
    first: pl.DataFrame, second: pl.DataFrame, unit: Unit
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of each run that count: of the prompts of both, or of the facts of both (`unit`)."""
    on = ("prompt_id",) if unit == "prompt" else FACT
    one, other = (each.with_columns(pl.col(on).cast(pl.String)) for each in (first, second))
    return one.join(other, on=on, how="semi"), other.join(one, on=on, how="semi")


def check_prompts(first: pl.DataFrame, second: pl.DataFrame) -> None:
    """Refuse runs that cannot be paired by prompts.

    Raises:
        InputError: a prompt stands twice in a run.
    """
    for name, run in {"first": first, "second": second}.items():
        if run["prompt_id"].is_duplicated().any():
            raise InputError(f"the {name} run has a prompt_id twice; give one answer per prompt.")


def unit_between(
    parts: Iterable[tuple[pl.DataFrame, pl.DataFrame]], *, templates_alone: bool
) -> Unit:
    """Prompts, as far as two runs have any in common; read relation by relation until one is found.

    `templates_alone`: the runs differ in nothing but which templates are asked. Of the templates of
    both they have the very same prompts, and the same answers: then facts are paired.
    """
    alike = not templates_alone and any(shared(one, other).prompts for one, other in parts)
    return "prompt" if alike else "fact"


def unit_of(first: pl.DataFrame, second: pl.DataFrame) -> Unit:
    """Prompts, unless some fact that both runs asked was asked by other prompts in each.

    A seed, a style or a choice of templates decides by which prompt a fact is sampled: by prompts,
    such facts would be lost. Both tables need prompt_id, relation_id and pair_id.
    """
    prompts, facts = (in_both(first, second, unit)[0].select(FACT) for unit in get_args(Unit))
    return "prompt" if prompts.n_unique() == facts.n_unique() else "fact"
