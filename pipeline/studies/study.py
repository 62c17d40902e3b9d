"""A study: its runs, each with a place along an axis; conf/study/<name>.yaml, or what is typed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from factsweep.operators.errors import InputError
from factsweep.operators.tables.comparison import PLACE
from factsweep.operators.wording import names, suggestion
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import Expanded, expand_runs
from factsweep.pipeline.config.literal import quote
from factsweep.pipeline.config.recipe import NoNumber, Text, build
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import past, record
from factsweep.pipeline.stages.plan import asking
from factsweep.pipeline.storage.store import Store

_WHICH = NoNumber("it says which runs there are, and each override is a field of conf/ by itself")
_SHOWN = NoNumber("it says how runs are set side by side")
SIZE, DATE, STEP, LANGUAGE = "size", "date", "step", "language"
_FIELDS = {SIZE: "model.billions_of_parameters", LANGUAGE: "benchmark.language"}
_SEED = "seed"
_STEP = re.compile(r"(?:step|checkpoint|iter)[-_]?(\d+)", re.IGNORECASE)
# Keys whose values the tables tell apart themselves.
_TOLD = ("model=", "model.adapter=", "prompt", "benchmark")


@dataclass(frozen=True)
class Written:
    """A study as it is written down (conf/study/<name>.yaml).

    `axis` is size, date, step, language or a field of a run; null: the runs stand in the order
    given. So many runs as `full` says, spread over the axis, are asked all prompts, where a budget
    asks a part.
    """

    runs: Annotated[tuple[Text, ...], _WHICH]
    axis: Annotated[Text | None, _SHOWN] = None
    reference: Annotated[Text | None, _SHOWN] = None
    full: Annotated[int, Field(ge=0, le=10_000), _WHICH] = 0
    known_share: Annotated[float, Field(gt=0, lt=1), _SHOWN] = 0.5


@dataclass(frozen=True)
class Member:
    """A run of a study, and its place along the axis; `label` has no seed, which means share."""

    label: str
    at: float
    seed: int
    run: Run
    overrides: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether it has answers to all of its prompts, and results."""
        return Store(self.run.results).exists(f"{self.run.name}/{record.NAME}")

    @property
    def is_answered(self) -> bool:
        """Whether it has results, of all of its prompts or of a part."""
        return past.is_done(self.run.results, self.run.name)

    @property
    def prompts(self) -> set[str]:
        """The artifacts of its prompts, which need no model."""
        return {asking(self.run, each)[-1].artifact.folder for each in self.run.settings}


@dataclass(frozen=True)
class Study:
    """The runs of a study in the order of its axis."""

    name: str
    plan: Written
    members: tuple[Member, ...]

    @property
    def axis(self) -> str:
        """What the runs stand along."""
        return self.plan.axis or PLACE

    @property
    def labels(self) -> list[str]:
        """The runs' labels in the order of the axis, each once."""
        return list(dict.fromkeys(each.label for each in self.members))

    @property
    def reference(self) -> str:
        """The run that the others are compared with: the first, unless one is named."""
        return self.plan.reference or self.labels[0]

    @property
    def is_estimated(self) -> bool:
        """Whether a part of the prompts is asked."""
        return any(each.run.budget is not None for each in self.members)

    @property
    def results(self) -> str:
        """Where the results of all runs lie."""
        return self.members[0].run.results


def study(name: str, overrides: Sequence[str], **changes: Any) -> Study:
    """The study of that name in conf/study/, with overrides for each of its runs, or a new one.

    `changes` are fields of `Written` that take the place of those in the file.

    Raises:
        InputError: there is none and the overrides give one run alone, or a run cannot be.
    """
    names.check_run(name)
    known = folders.files("study")
    given = {key: value for key, value in changes.items() if value is not None}
    content = folders.content(known[name]) if name in known else {"runs": []}
    plan = build(Written, {**content, **given}, f"study {name}")
    found = combined([*plan.runs, *overrides])
    if name not in known and len(found) == 1:
        load(found[0].overrides)  # says which of them it cannot read
        raise InputError(
            f"{_absent(name)}, and one run is no study; give several values, as in "
            f"model=gpt2,gpt2-xl.{suggestion(name, known)}"
        )
    members = sorted(_members(name, found, plan.axis), key=lambda each: each.at)
    made = Study(name, plan, tuple(members))
    if made.reference not in made.labels:
        meant = suggestion(made.reference, made.labels)
        labels = ", ".join(made.labels)
        raise InputError(f"the reference {made.reference} is none of the runs {labels}.{meant}")
    return made


def combined(overrides: Sequence[str]) -> list[Expanded]:
    """The runs that overrides give; of two values for one key the last one counts.

    Raises:
        InputError: they cannot be read.
    """
    return expand_runs(list({each.partition("=")[0]: each for each in overrides}.values()))


def with_studies(overrides: Sequence[str]) -> list[str]:
    """The overrides, with those of conf/study/NAME.yaml in place of `study=NAME`.

    Raises:
        InputError: there is no such study, or a second one.
    """
    named = [each for each in overrides if each.startswith("study=")]
    if len(named) > 1:
        raise InputError(f"{' '.join(named)}: a line takes one study; write a line for each.")
    rest = [each for each in overrides if each not in named]
    return [*(run for each in named for run in _runs(each.partition("=")[2])), *rest]


def _runs(name: str) -> tuple[str, ...]:
    known = folders.files("study")
    if name not in known:
        raise InputError(f"{_absent(name)}.{suggestion(name, known)}")
    return build(Written, folders.content(known[name]), f"study {name}").runs


def _absent(name: str) -> str:
    return (
        f"there is no study {name!r} in conf/study/, which has {', '.join(folders.files('study'))}"
    )


def _members(name: str, found: Sequence[Expanded], axis: str | None) -> list[Member]:
    made = [_member(name, each) for each in found]
    runs = [run.name for _, run, _ in made]
    names.check_apart(runs, f"the runs of {name}:")
    if twice := next((each for each in runs if runs.count(each) > 1), None):
        raise InputError(f"two runs of {name} would be named {twice}; rename one of their folders.")
    places = _places([(label, run) for label, run, _ in made], axis)
    return [
        Member(label, at, run.seed, run, overrides)
        for (label, run, overrides), at in zip(made, places, strict=True)
    ]


def _member(name: str, of: Expanded) -> tuple[str, Run, tuple[str, ...]]:
    """A run by its label, which is made of what varies beside the seed."""
    varied = {key: _plain(value) for key, value in of.varied.items() if key != _SEED}
    label, overrides = "-".join(varied.values()), list(of.overrides)
    if any(not f"{key}=".startswith(_TOLD) for key in varied):  # all would bear one name in tables
        overrides.append(f"model.name={quote(label)}")
    run = load(overrides)
    label = label or run.model.name
    seed = f"-seed-{of.varied[_SEED]}" if _SEED in of.varied else ""
    called = f"{name}/{label}{seed}"
    return label, replace(run, name=called), (*overrides, f"run_name={quote(called)}")


def _plain(value: str) -> str:
    """A value as a part of a name: the last part of a path."""
    return re.sub(r"[^\w.+-]+", "-", Path(value).name).strip("-")


def _places(runs: Sequence[tuple[str, Run]], axis: str | None) -> list[float]:
    """Where each run stands along the axis; names and dates that are no numbers, in their order."""
    values = [label if axis is None else _value(label, run, axis) for label, run in runs]
    if all(isinstance(each, int | float) for each in values):
        return [float(each) for each in values]
    texts = list(dict.fromkeys(map(str, values)))
    return [float(texts.index(str(each))) for each in values]


def _value(label: str, run: Run, axis: str) -> Any:
    if axis == STEP:
        found = _STEP.findall(label) or re.findall(r"\d+", label)
        value: Any = int(found[-1]) if found else None
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
    year, month, day = (*(int(each) for each in cutoff.split("-")), 1, 1)[:3]
    whole = date(year + 1, 1, 1) - date(year, 1, 1)
    return year + (date(year, month, day) - date(year, 1, 1)) / whole


def _field(run: Run, path: str) -> Any:
    found: Any = run
    for part in path.split("."):
        inside = found if isinstance(found, Mapping) else vars(found) if found else {}
        if part not in inside:
            raise InputError(
                f"axis={path} is no field of a run; give size, date, step, language or a field."
            )
        found = inside[part]
    return found
