"""Which settings of past runs are compared, and what the two of a pair differ in."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import Compare
from factsweep.operators.metrics.comparing.paired import Unit, unit_between
from factsweep.operators.wording import suggestion
from factsweep.pipeline.results import past
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.storage.recipe import differences

Setting = TypeVar("Setting")

# What two runs may differ in beside how they were asked: the model itself, its answers' file, and
# the name of the night.
_OF_THE_MODEL = {"model", "answers", "repetition"}
# How facts are asked (of the recipe of prompts): what comparisons are made to see.
_ASKED = ("setting.", "seed:")


@dataclass(frozen=True)
class Pair:
    """One setting of a run, and the one that it is compared with."""

    first: PastBranch
    second: PastBranch
    asked: tuple[str, ...]  # what the prompts differ in
    departures: tuple[str, ...]  # what differs beside that and the model

    @property
    def title(self) -> str:
        """The setting, or both."""
        titles = self.first.setting, self.second.setting
        return titles[0] if titles[0] == titles[1] else " and ".join(titles)

    @property
    def names(self) -> tuple[str, str]:
        """How the two are called: by model, setting and seed, as far as they differ, or by run."""
        both = self.first, self.second
        told = [(each.model, each.setting, f"seed {each.seed}") for each in both]
        differing = [each for each in zip(*told, strict=True) if each[0] != each[1]]
        if differing:
            one, other = zip(*differing, strict=True)
            return " ".join(one), " ".join(other)
        runs = self.first.run, self.second.run
        return runs if runs[0] != runs[1] else (runs[0], f"{runs[1]} (again)")

    @property
    def relations(self) -> list[str]:
        """The relations that both have answers of."""
        return sorted({*self.first.relations} & {*self.second.relations})

    @property
    def unit(self) -> Unit:
        """Prompts, as far as both have any and differ in more than the choice of templates."""
        other = [line for line in self.asked if not line.startswith("prompts setting.templates:")]
        alone = bool(self.asked) and not other and self.first.model == self.second.model
        both = self.first, self.second
        ours, theirs = (map(each.matched_answers, self.relations) for each in both)
        return unit_between(zip(ours, theirs, strict=True), templates_alone=alone)


def pairs(first: str, second: str, results: str) -> list[Pair]:
    """Two runs' settings, paired by title, or the only ones; named as RUN or RUN:SETTING.

    Raises:
        InputError: there is no such run or setting, nothing to pair, or no relation in common.
    """
    ours, theirs = (setting_of(each, partial(past.by_title, results)) for each in (first, second))
    found = [paired(one, other) for one, other in matching((first, ours), (second, theirs))]
    for each in found:
        if not each.relations:
            raise InputError(
                f"{each.first.run} and {each.second.run} have no relation in common; compare runs "
                "over the same data."
            )
    return found


def matching(
    first: tuple[str, Mapping[str, Setting]], second: tuple[str, Mapping[str, Setting]]
) -> list[tuple[Setting, Setting]]:
    """The settings of two runs that are compared; each run is given with its settings by title.

    Raises:
        InputError: there is nothing to pair.
    """
    (one, ours), (other, theirs) = first, second
    titles = [title for title in ours if title in theirs]
    if len(ours) == len(theirs) == 1:
        return list(zip(ours.values(), theirs.values(), strict=True))
    if titles:
        return [(ours[title], theirs[title]) for title in titles]
    example = [f"{each}:{next(iter(of))}" for each, of in ((one, ours), (other, theirs))]
    raise InputError(
        f"{one} and {other} have no setting in common: {', '.join(ours)} and "
        f"{', '.join(theirs)}; name one of each: {' '.join(map(shlex.quote, example))}."
    )


def setting_of(
    text: str, settings: Callable[[str], Mapping[str, Setting]]
) -> Mapping[str, Setting]:
    """Those settings of a run, by title, that RUN or RUN:SETTING stands for.

    Raises:
        InputError: the run has no such setting.
    """
    run, _, setting = text.partition(":")
    found = settings(run)
    if not setting:
        return found
    if setting not in found:
        meant = suggestion(setting, found)
        raise InputError(f"{run} has no setting {setting}; it has {', '.join(found)}.{meant}")
    return {setting: found[setting]}


def comparing(branch: PastBranch) -> Compare:
    """How runs of a branch's method are compared.

    Raises:
        InputError: they cannot be.
    """
    found = branch.how.compare
    if found is None:
        raise InputError(f"{branch.run} measured {branch.benchmark}; its runs cannot be compared.")
    return found


def paired(one: PastBranch, other: PastBranch) -> Pair:
    """Two settings, and what they differ in.

    Raises:
        InputError: runs of their benchmark cannot be compared.
    """
    for each in (one, other):
        comparing(each)
    lines = list(_differences(one, other))
    asked = [line for line in lines if line.removeprefix("prompts ").startswith(_ASKED)]
    return Pair(one, other, tuple(asked), tuple(line for line in lines if line not in asked))


def departing(pair: Pair) -> InputError:
    """The refusal of a pair that differs in more than the model and how it was asked."""
    one, other = pair.first, pair.second
    return InputError(
        f"{one.run} ({one.setting}) and {other.run} ({other.setting}) differ in more than "
        f"the model and how they were asked ({'; '.join(pair.departures)}); run one of "
        "them again, or compare them --anyway."
    )


def _differences(one: PastBranch, other: PastBranch) -> Iterator[str]:
    """What the two differ in, apart from the model: facts, prompts, decoding, matching."""
    stages = ["facts", "prompts"]
    if one.method == other.method:
        stages += [one.how.ask.ability.answers, "matched"]
    for stage in stages:
        if stage not in one.artifacts or stage not in other.artifacts:
            continue
        ours, theirs = (each.artifacts[stage].recipe.fields for each in (one, other))
        for line in differences(ours, theirs):
            # The seed of the answers is that of the prompts.
            if line.partition(":")[0].partition(".")[0] not in _OF_THE_MODEL and (
                stage == "prompts" or not line.startswith("seed:")
            ):
                yield f"{stage} {line}"
    if not all("matched" in each.artifacts for each in (one, other)):  # an estimate's are not kept
        ours, theirs = ({"matching": each.record["run"]["matching"]} for each in (one, other))
        yield from (f"matched {line}" for line in differences(ours, theirs))
