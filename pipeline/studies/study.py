"""A study: runs along an axis, from conf/study/<name>.yaml or the command line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from factsweep.operators.errors import FactsweepError, InputError, StoppedError
from factsweep.operators.tables.comparison import PLACE
from factsweep.operators.wording import safe_names, suggestion
from factsweep.pipeline.cluster.ray_cluster import share_ray
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import ExpandedRun, expand_runs
from factsweep.pipeline.config.literal_overrides import quote
from factsweep.pipeline.config.recipe import NoNumber, Text, build
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import past_runs, run_record
from factsweep.pipeline.runs.estimate import estimate
from factsweep.pipeline.runs.run import run as compute
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.plan import asking
from factsweep.pipeline.storage.store import Store

_WHICH = NoNumber("it says which runs there are, and each override is a field of conf/ by itself")
_SHOWN = NoNumber("it says how runs are set side by side")
SIZE, DATE, STEP, LANGUAGE = "size", "date", "step", "language"
_FIELDS = {SIZE: "model.billions_of_parameters", LANGUAGE: "benchmark.language"}
_SEED = "seed"
_STEP = re.compile(r"(?:step|checkpoint|iter)[-_]?(\d+)", re.IGNORECASE)
# Keys whose values the tables show themselves.
_TABLE_KEYS = ("model=", "model.adapter=", "prompt", "benchmark")


@dataclass(frozen=True)
class StudyFile:
    """A study file (conf/study/<name>.yaml).

    `axis` is size, date, step, language or a field of a run; null keeps the order of the runs. With
    a budget, `full` runs, spread over the axis, are asked all prompts.
    """

    runs: Annotated[tuple[Text, ...], _WHICH]
    axis: Annotated[Text | None, _SHOWN] = None
    reference: Annotated[Text | None, _SHOWN] = None
    full: Annotated[int, Field(ge=0, le=10_000), _WHICH] = 0
    known_share: Annotated[float, Field(gt=0, lt=1), _SHOWN] = 0.5


@dataclass(frozen=True)
class Member:
    """A run of a study, and its place along the axis; seeds of a run share the `label`."""

    label: str
    at: float
    seed: int
    run: Run
    overrides: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether it has answers to all of its prompts, and results."""
        return Store(self.run.results).exists(f"{self.run.name}/{run_record.NAME}")

    @property
    def is_answered(self) -> bool:
        """Whether it has results, of all prompts or of a part."""
        return past_runs.is_done(self.run.results, self.run.name)

    @property
    def prompts(self) -> set[str]:
        """The artifacts of its prompts, which need no model."""
        return {asking(self.run, setting)[-1].artifact.folder for setting in self.run.settings}


@dataclass(frozen=True)
class Study:
    """The runs of a study in the order of its axis."""

    name: str
    plan: StudyFile
    members: tuple[Member, ...]

    @property
    def axis(self) -> str:
        """The name of the axis."""
        return self.plan.axis or PLACE

    @property
    def labels(self) -> list[str]:
        """The runs' labels in the order of the axis, each once."""
        return list(dict.fromkeys(member.label for member in self.members))

    @property
    def reference(self) -> str:
        """The run that the others are compared with; default the first."""
        return self.plan.reference or self.labels[0]

    @property
    def is_estimated(self) -> bool:
        """Whether a part of the prompts is asked."""
        return any(member.run.budget is not None for member in self.members)

    @property
    def results(self) -> str:
        """The folder of the results of all runs."""
        return self.members[0].run.results


def study(name: str, overrides: Sequence[str], **changes: Any) -> Study:
    """The study of that name in conf/study/, with overrides for each of its runs, or a new one.

    `changes` are fields of `StudyFile` that take the place of those in the file.

    Raises:
        InputError: there is none and the overrides give one run alone, or a run cannot be.
    """
    safe_names.check_run(name)
    paths = folders.files("study")
    fields = {key: value for key, value in changes.items() if value is not None}
    content = folders.content(paths[name]) if name in paths else {"runs": []}
    plan = build(StudyFile, {**content, **fields}, f"study {name}")
    runs = combine_overrides([*plan.runs, *overrides])
    if name not in paths and len(runs) == 1:
        load(runs[0].overrides)  # names an override that it cannot read
        raise InputError(
            f"{_explain_missing(name)}, and one run is no study; give several values, as in "
            f"model=gpt2,gpt2-xl.{suggestion(name, paths)}"
        )
    members = sorted(_members(name, runs, plan.axis), key=lambda member: member.at)
    study = Study(name, plan, tuple(members))
    if study.reference not in study.labels:
        hint = suggestion(study.reference, study.labels)
        labels = ", ".join(study.labels)
        raise InputError(f"the reference {study.reference} is none of the runs {labels}.{hint}")
    return study


def combine_overrides(overrides: Sequence[str]) -> list[ExpandedRun]:
    """The runs of some overrides; of two values for one key the last one counts.

    Raises:
        InputError: they cannot be read.
    """
    return expand_runs(list({o.partition("=")[0]: o for o in overrides}.values()))


def with_studies(overrides: Sequence[str]) -> list[str]:
    """The overrides, with those of conf/study/NAME.yaml in place of `study=NAME`.

    Raises:
        InputError: there is no such study, or a second one.
    """
    studies = [override for override in overrides if override.startswith("study=")]
    if not studies:
        return list(overrides)
    if len(studies) > 1:
        raise InputError(f"{' '.join(studies)}: a line takes one study; write a line for each.")
    name, paths = studies[0].partition("=")[2], folders.files("study")
    if name not in paths:
        raise InputError(f"{_explain_missing(name)}.{suggestion(name, paths)}")
    runs = build(StudyFile, folders.content(paths[name]), f"study {name}").runs
    return [*runs, *(override for override in overrides if override not in studies)]


def _explain_missing(name: str) -> str:
    return (
        f"there is no study {name!r} in conf/study/, which has {', '.join(folders.files('study'))}"
    )


def _members(name: str, expanded_runs: Sequence[ExpandedRun], axis: str | None) -> list[Member]:
    named_runs = [_name_run(name, expanded_run) for expanded_run in expanded_runs]
    run_names = [run.name for _, run, _ in named_runs]
    safe_names.check_apart(run_names, f"the runs of {name}:")
    if twice := next((run for run in run_names if run_names.count(run) > 1), None):
        raise InputError(f"two runs of {name} would be named {twice}; rename one of their folders.")
    values = [label if axis is None else _value(label, run, axis) for label, run, _ in named_runs]
    if not all(isinstance(value, int | float) for value in values):  # names, in their order
        texts = list(dict.fromkeys(map(str, values)))
        values = [texts.index(str(value)) for value in values]
    return [
        Member(label, float(value), run.seed, run, overrides)
        for (label, run, overrides), value in zip(named_runs, values, strict=True)
    ]


def _name_run(name: str, expanded_run: ExpandedRun) -> tuple[str, Run, tuple[str, ...]]:
    """A run with its label, which is made of the keys that vary, except the seed."""
    varied = {
        key: re.sub(r"[^\w.+-]+", "-", _last_part(key, value)).strip("-")
        for key, value in expanded_run.varied.items()
    }
    seed = f"-seed-{expanded_run.varied[_SEED]}" if varied.pop(_SEED, None) is not None else ""
    label, overrides = "-".join(varied.values()), list(expanded_run.overrides)
    if any(not f"{key}=".startswith(_TABLE_KEYS) for key in varied):  # else tables show one name
        overrides.append(f"model.name={quote(label)}")
    run = load(overrides)
    label = label or run.model.name
    run_name = f"{name}/{label}{seed}"
    return label, replace(run, name=run_name), (*overrides, f"run_name={quote(run_name)}")


def _last_part(key: str, value: str) -> str:
    """The name of a folder or a value; that of a file of answers without its suffix."""
    return Path(value).stem if key == "answers" else Path(value).name


def _value(label: str, run: Run, axis: str) -> Any:
    if axis == STEP:
        numbers = _STEP.findall(label) or re.findall(r"\d+", label)
        value: Any = int(numbers[-1]) if numbers else None
    elif axis == DATE:
        value = _year(run.model.training_cutoff)
    else:
        value = _field(run, _FIELDS.get(axis, axis))
    if value is None:
        raise InputError(
            f"{label} has no {axis} to stand along; choose another axis, leave this run out, or "
            "give the model's field."
        )
    return value


def _year(cutoff: str | None) -> float | None:
    """A date as a year with its fraction: 2023-07 is 2023.5."""
    if cutoff is None:
        return None
    year, month, day = (*map(int, cutoff.split("-")), 1, 1)[:3]
    n_days = date(year + 1, 1, 1) - date(year, 1, 1)
    return year + (date(year, month, day) - date(year, 1, 1)) / n_days


def _field(run: Run, path: str) -> Any:
    value: Any = run
    for part in path.split("."):
        fields = value if isinstance(value, Mapping) else vars(value) if value else {}
        if part not in fields:
            raise InputError(
                f"axis={path} is no field of a run; give size, date, step, language or a field."
            )
        value = fields[part]
    return value


@dataclass(frozen=True)
class FailedRun:
    """A run that ended without results, and why."""

    label: str
    error: FactsweepError


def ask_members(study: Study) -> list[FailedRun]:
    """Compute the missing parts of each run; a run that fails ends only itself.

    A run with a budget asks a part of its prompts, with the nearest run along the axis that has
    answers to all of them as its control. The first `study.plan.full` runs are asked all prompts.

    Raises:
        StoppedError: the user asked to stop; the next time resumes.
    """
    members = list(coarse_first(study.members))
    full = members[: study.plan.full] if members[0].run.budget is not None else []
    failures = []
    with share_ray():  # and its engines: a checkpoint of the same model is loaded in place
        for index, member in enumerate(members):
            LOG.info("run %d of %d: %s", index + 1, len(members), member.run.name)
            try:
                _measure(study, member, is_full=member in full)
            except StoppedError:
                raise
            except FactsweepError as error:
                LOG.error("%s: %s The study continues without it.", member.label, error)
                failures.append(FailedRun(member.label, error))
    return failures


def _measure(study: Study, member: Member, *, is_full: bool) -> None:
    run = member.run
    if run.budget is None or (is_full and run.answers is None):
        full_run = replace(run, budget=None, control=None, target=None)
        (compute if run.answers is None else score)(full_run)
    elif not member.is_complete:  # an estimate adds nothing to a full run
        estimate(replace(run, control=run.control or _control(study, member)))


def _control(study: Study, member: Member) -> str | None:
    """The nearest run with answers to all of the same prompts, or None."""
    candidates = [other for other in study.members if other is not member and other.is_complete]
    for other in sorted(candidates, key=lambda other: abs(other.at - member.at)):
        if other.prompts == member.prompts:
            return other.run.name
    return None


def coarse_first(members: Sequence[Member]) -> Iterator[Member]:
    """The last, the first, and then the middle of the widest gap that is left.

    An interrupted study has the whole curve, only coarser.

    >>> [member for member in coarse_first([0, 1, 2, 3, 4])]  # type: ignore[list-item]
    [4, 0, 2, 1, 3]
    """
    last = len(members) - 1
    yield members[last]
    if last == 0:
        return
    yield members[0]
    gaps = [(0, last)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle > low:
            yield members[middle]
            gaps += [(low, middle), (middle, high)]
