"""Ranks of a study that asks a part of the prompts: which are decided, and who is asked more."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import polars as pl

from factsweep.operators.blas import single_threaded_blas
from factsweep.operators.errors import InputError
from factsweep.operators.estimates import race
from factsweep.operators.estimates.race import Better
from factsweep.operators.methods.method import Method
from factsweep.operators.metrics.comparing.along import possible_ranks
from factsweep.pipeline.config.budget import budget
from factsweep.pipeline.estimates import written
from factsweep.pipeline.studies.study import Member, Study

RANKS = ("rank_low", "rank_high")


def check(study: Study) -> None:
    """Refuse a study with `until` whose runs cannot be told apart prompt by prompt."""
    if study.plan.until is None:
        return
    run, named = study.members[0].run, f"until={study.plan.until}"
    if any(
        each.run.budget is None or budget(each.run.budget).share is None for each in study.members
    ):
        raise InputError(f"{named} begins with a share of the prompts; give one, as in budget=1%.")
    if any(each.run.target is not None for each in study.members):
        raise InputError(f"{named} and target= both say when to stop; leave one out.")
    if run.method.measure.sampling is None or run.method.measure.sampling.paired is None:
        raise InputError(
            f"{named} compares answers prompt by prompt, which estimates of benchmark="
            f"{run.benchmark.name} cannot; leave it out."
        )
    if len(study.labels) < len(study.members):
        raise InputError(f"{named} ranks runs, and some differ in their seed alone; give one seed.")
    if any(each.prompts != study.members[0].prompts for each in study.members):
        raise InputError(f"{named} ranks runs that were asked the same prompts; these were not.")


def looks(study: Study) -> list[float]:
    """The shares of the prompts that a study with `until` asks one after the other, if need be."""
    if study.plan.until is None:
        return []
    return race.shares(float(budget(str(study.members[0].run.budget)).share or 1))


def undecided(study: Study) -> list[Member]:
    """The runs that asked a part of their prompts and whose place is not decided in a setting."""
    until = str(study.plan.until)
    n_top = None if until == "ranked" else int(until.removeprefix("top-"))
    left = {
        list(labels)[place]
        for labels, better in _told_apart(study).values()
        for place in race.undecided(better, n_top)
    }
    return [each for each in study.members if each.label in left and not each.is_complete]


def ranked(study: Study, points: pl.DataFrame) -> pl.DataFrame:
    """The points with the ranks that are decided; null where the study has no `until`."""
    rows = [
        (setting, *each)
        for setting, (labels, better) in _told_apart(study).items()
        for each in zip(labels, *possible_ranks(better), strict=True)
    ]
    known = dict.fromkeys(("setting", "label"), pl.String) | dict.fromkeys(RANKS, pl.Int64)
    ranks = pl.DataFrame(rows, known, orient="row")
    return points.join(ranks, on=["setting", "label"], how="left", maintain_order="left")


@single_threaded_blas()
def _told_apart(study: Study) -> dict[str, tuple[list[str], Better]]:
    """For each setting the runs that have results, and which is certainly better than which."""
    there = [each for each in study.members if each.is_answered]
    if study.plan.until is None or all(each.is_complete for each in there):
        return {}
    settings = {each.label: written.settings(each.run.results, each.run.name) for each in there}
    part = settings[next(each.label for each in there if not each.is_complete)]
    n, n_looks = len(study.members), len(looks(study)) - 1
    error = race.error_of_each(study.plan.error, n, len(part), n_looks)
    found = {}
    for title, branch in part.items():
        pairs = branch.artifacts["chosen"].read("crossed", "all")
        answers = {label: written.answers(each[title]) for label, each in settings.items()}
        found[title] = list(answers), _better(branch.how, pairs, answers, error)
    return found


def _better(
    method: Method, pairs: pl.DataFrame, answers: Mapping[str, pl.DataFrame], error: float
) -> Better:
    """Whose main metric is certainly higher than whose, in the order of the answers."""
    sampling, main = method.measure.sampling, method.measure.main_metric
    assert sampling is not None
    assert sampling.paired is not None
    better = np.zeros((len(answers), len(answers)), np.bool_)
    for (i, one), (j, other) in combinations(enumerate(answers.values()), 2):
        found = sampling.paired(pairs, one, other, error).filter(metric=main)
        better[j, i] = (found["ci_low"] > 0).any()
        better[i, j] = (found["ci_high"] < 0).any()
    return better
