"""nightly: a named sweep every night, compared with the last accepted baseline.

<results>/<name>-<date>/<model>-<benchmark>-…/   the results of each run
                       /compare/<setting>/       the tables of each comparison
                       /verdict.json             the last file: the verdict on the night
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from factsweep.operators.errors import InputError
from factsweep.operators.methods.ability import ABILITIES
from factsweep.operators.methods.method import Report
from factsweep.operators.metrics.comparing.verdict import Outcome
from factsweep.operators.names import check_run, folded
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.cluster import Cpus
from factsweep.pipeline.config.limits import Share, Text
from factsweep.pipeline.config.recipe import NoNumber
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load as load_run
from factsweep.pipeline.config.several import expanded
from factsweep.pipeline.config.suggestion import suggestion
from factsweep.pipeline.config.typed import build
from factsweep.pipeline.estimates import night as asked_in_part
from factsweep.pipeline.estimates.estimate import estimate
from factsweep.pipeline.nightly import baseline
from factsweep.pipeline.nightly.baseline import Baseline
from factsweep.pipeline.reports import compare_estimates
from factsweep.pipeline.reports.compare import Compared, Comparison, compared
from factsweep.pipeline.reports.compare import settings as comparison_settings
from factsweep.pipeline.results.pairs import Pair
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.run import run as compute
from factsweep.pipeline.score import score
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import differences
from factsweep.pipeline.storage.sealed import seal
from factsweep.pipeline.storage.stores.store import Store
from factsweep.pipeline.storage.tables import write_report

EXIT_CODES: dict[Outcome, int] = {
    "improvement": 0,
    "no change": 0,
    "not enough evidence": 4,
    "regression": 3,
}
_WORST_FIRST: tuple[Outcome, ...] = ("regression", "not enough evidence", "improvement")
# What a nightly measures: software that may change answers, or how they are matched.
_SOFTWARE = (
    *(f"{ability.answers} software." for ability in ABILITIES),
    "matched versions",
)

_STARTED = NoNumber("it says when and where a night is started, not what it computes")


@dataclass(frozen=True)
class Unit:
    """When and where a scheduler starts it."""

    at: Annotated[Text, _STARTED]
    image: Annotated[Text, _STARTED]
    secret: Annotated[Text | None, _STARTED]
    claim: Annotated[Text, _STARTED]
    gpus: Annotated[int, Field(ge=0, le=1_000), _STARTED]
    cpus: Annotated[Cpus, _STARTED] = 2
    memory: Annotated[Text, _STARTED] = "16Gi"
    hours: Annotated[float, Field(gt=0, le=168), _STARTED] = 12
    tolerations: Annotated[tuple[dict[str, Any], ...], _STARTED] = ()
    pull_secrets: Annotated[tuple[Text, ...], _STARTED] = ()


@dataclass(frozen=True)
class Nightly:
    """A nightly (conf/nightly/<name>.yaml)."""

    runs: Annotated[
        tuple[tuple[Text, ...], ...], NoNumber("each override is a field of conf/ by itself")
    ]
    fresh: Annotated[bool, NoNumber("it sets decoding.repeats, which is part of a recipe")]
    max_flip_rate: Annotated[Share, NoNumber("it says when a verdict is withheld")]
    comparison: Annotated[dict[str, Any], NoNumber("it changes fields of conf/comparison/")]
    unit: Unit


@dataclass(frozen=True)
class Judged:
    """The verdict on one setting, and its evidence."""

    run: str
    setting: str
    outcome: Outcome
    reason: str
    against: str | None = None
    reused: bool = False  # the answers are the baseline's: only the canary was decoded again
    flip_rate: float | None = None
    lost: tuple[str, ...] = ()
    n_gained: int = 0
    tables: str | None = None
    estimate: str | None = None  # of which part of the prompts it is


@dataclass(frozen=True)
class Night:
    """The verdict on all settings; the worst of them decides."""

    name: str
    results: str
    outcome: Outcome
    baseline: Baseline | None
    changed: tuple[str, ...]
    settings: tuple[Judged, ...]

    @property
    def exit_code(self) -> Literal[0, 3, 4]:
        """0: no change or better; 3: a regression; 4: not enough evidence."""
        return EXIT_CODES[self.outcome]  # type: ignore[return-value]


def label(name: str) -> str:
    """The name of a nightly that may be given as the path of its file."""
    return Path(name).stem


def load(name: str) -> Nightly:
    """The nightly of that name in conf/nightly/, or in the YAML file that is named.

    Raises:
        InputError: there is none, or it does not hold what a nightly holds.
    """
    known = folders.files("nightly")
    path = Path(name) if name.endswith(".yaml") else known.get(name)
    if path is None or not path.is_file():
        raise InputError(
            f"there is no nightly {name!r}; conf/nightly/ has {', '.join(known)}."
            f"{suggestion(name, known)}"
        )
    return build(Nightly, folders.content(path), path.name)


def runs(name: str, overrides: Sequence[str], day: date) -> list[Run]:
    """The runs of a night, each with a name of its own under that of the night.

    Raises:
        InputError: one cannot be run or compared, or two measure the same.
    """
    given = load(name)
    if not given.runs:
        raise InputError(f"nightly {name} has no runs; give it one, a list of overrides.")
    found: dict[str, Run] = {}
    for each in (one for line in given.runs for one in expanded([*line, *overrides])):
        run = load_run(each.overrides)
        measured = baseline.measured(run.model.name, run.benchmark.name)
        if measured in found:
            raise InputError(f"nightly {name} has two runs of {measured}; make them one.")
        if run.method.compare is None:
            raise InputError(f"nightly {name} cannot compare {measured}: it is none of BELIEF.")
        folder = f"{label(name)}-{day}/{run.model.name}-{run.benchmark.name}"
        check_run(folder)
        asked_in_part.check(run)
        if any(folded(other.name) == folded(folder) for other in found.values()):
            raise InputError(f"nightly {name} has two runs named {folder}; give one model.name=….")
        found[measured] = _named(run, given, folder, str(day))
    return list(found.values())


def _named(run: Run, given: Nightly, name: str, day: str) -> Run:
    anew = given.fresh or run.budget is not None
    repeats: Literal["all", "canary"] = "all" if anew else "canary"
    decoding = replace(run.decoding, repetition=day, repeats=repeats)
    return replace(run, name=name, decoding=decoding)


def night(name: str, overrides: Sequence[str], day: date) -> Night:
    """Measure all runs, or resume, compare them with the baseline, and write the verdict down.

    Raises:
        InputError: something that was given is wrong.
        DecodingError: too many prompts of a run have no answer.
    """
    given = load(name)
    comparison = comparison_settings(given.comparison)
    tonight = runs(name, overrides, day)
    results = tonight[0].results
    accepted = baseline.history(label(name), results)[-1:]
    for run in tonight:
        _measure(run, accepted)
    pairs = [_paired(run, accepted) for run in tonight]
    judged = [
        each
        for run, pair in zip(tonight, pairs, strict=True)
        for each in (_judged(pair, given, comparison) if pair else _unheld(run))
    ]
    outcomes = {each.outcome for each in judged}
    found = Night(
        name=f"{label(name)}-{day}",
        results=Store(results).where(),
        outcome=next((each for each in _WORST_FIRST if each in outcomes), "no change"),
        baseline=accepted[0] if accepted else None,
        changed=tuple(dict.fromkeys(line for pair in pairs if pair for line in _changed(pair))),
        settings=tuple(judged),
    )
    name = f"{found.name}/verdict.json"
    content = seal(asdict(found) | {"exit_code": found.exit_code}, name)
    Store(results).put(name, content)
    return found


def _measure(run: Run, accepted: Sequence[Baseline]) -> None:
    """Ask what a run asks; a part of its prompts with the baseline as its control."""
    if run.budget is None:
        measure = score if run.answers else compute
        measure(run)
    elif (against := _against(run, accepted)) is None:
        estimate(run)
    else:
        before = baseline.settings(accepted[0], against, run.results)
        estimate(asked_in_part.controlled(run, against, before))


@dataclass(frozen=True)
class _Pair:
    """A run of tonight, and the run of the baseline that measured the same; settings by name."""

    run: Run
    tonight: Mapping[str, PastBranch]
    against: str
    before: Mapping[str, PastBranch]

    @property
    def shared(self) -> list[str]:
        return [setting for setting in self.before if setting in self.tonight]

    @property
    def names(self) -> tuple[str, str, str]:
        """The baseline, the run, and where both are."""
        return self.against, self.run.name, self.run.results


def _paired(run: Run, accepted: Sequence[Baseline]) -> _Pair | None:
    """The run with its baseline; null: none is accepted."""
    against = _against(run, accepted)
    if against is None:
        return None
    before = baseline.settings(accepted[0], against, run.results)
    return _Pair(run, asked_in_part.settings(run), against, before)


def _against(run: Run, accepted: Sequence[Baseline]) -> str | None:
    """The accepted run that measured the same; null: there is none."""
    measured = baseline.measured(run.model.name, run.benchmark.name)
    return accepted[0].runs.get(measured) if accepted else None


def _unheld(run: Run) -> Iterator[Judged]:
    """The verdict on a run where no baseline is accepted."""
    measured = baseline.measured(run.model.name, run.benchmark.name)
    reason = f"no baseline of {measured} is accepted yet"
    reason += asked_in_part.NO_BASELINE if run.budget is not None else ""
    for setting, mark in asked_in_part.marks(run).items():
        yield Judged(run.name, setting, "not enough evidence", reason, estimate=mark)


def _judged(pair: _Pair, given: Nightly, comparison: Comparison) -> Iterator[Judged]:
    run, reason = pair.run, f"the baseline {pair.against} did not measure it"
    shared, estimated = set(pair.shared), run.budget is not None
    if not estimated and not _relations(pair.before) & _relations(pair.tonight):
        reason = f"the baseline {pair.against} measured other relations; accept a new one"
        shared = set()
    if shared:
        yield from _estimated(pair, comparison) if estimated else _whole(pair, given, comparison)
    for setting, mark in asked_in_part.marks(run).items():
        if setting not in shared:
            outcome: Outcome = "not enough evidence"
            yield Judged(run.name, setting, outcome, reason, pair.against, estimate=mark)


def _whole(pair: _Pair, given: Nightly, comparison: Comparison) -> Iterator[Judged]:
    for found in compared(*pair.names, comparison, anyway=True):
        where = _write(pair, found.pair.title, found.report)
        yield _judge(pair, found, given.max_flip_rate, where)


def _estimated(pair: _Pair, comparison: Comparison) -> Iterator[Judged]:
    marks = asked_in_part.marks(pair.run)
    for found in compare_estimates.compared(*pair.names, comparison, anyway=True):
        setting = found.pair.title
        where = _write(pair, setting, found.report)
        outcome, reason = found.verdict.outcome, found.verdict.reason
        if other := _asked_otherwise(found.pair):
            outcome, reason = "not enough evidence", other
        name, against, mark = pair.run.name, pair.against, marks[setting]
        yield Judged(name, setting, outcome, reason, against, tables=where, estimate=mark)


def _write(pair: _Pair, setting: str, report: Report) -> str:
    night, _, run = pair.run.name.partition("/")
    store = Store(f"{pair.run.results}/{night}/compare/{run}-{setting.replace(' ', '-')}")
    write_report(store, report)
    return store.where()


def _relations(branches: Mapping[str, PastBranch]) -> set[str]:
    return {each for branch in branches.values() for each in branch.relations}


def _judge(pair: _Pair, found: Compared, max_flip_rate: float, where: str) -> Judged:
    answers = [each[found.pair.title].answers for each in (pair.before, pair.tonight)]
    outcome, reason = judge(found, max_flip_rate)
    return Judged(
        run=pair.run.name,
        setting=found.pair.title,
        outcome=outcome,
        reason=reason,
        against=pair.against,
        reused=answers[0].folder == answers[1].folder,
        flip_rate=found.flip_rates[1],
        lost=found.lost,
        n_gained=found.n_gained,
        tables=where,
    )


def judge(found: Compared, max_flip_rate: float) -> tuple[Outcome, str]:
    """The verdict, unless the two were asked differently, or decoding cannot be trusted."""
    if other := _asked_otherwise(found.pair):
        return "not enough evidence", other
    noise = found.flip_rates[1] or 0.0
    if noise > max_flip_rate and found.verdict.outcome != "regression":
        return "not enough evidence", (
            f"{noise:.4f} of the canary's answers changed when decoded again, above "
            f"max_flip_rate={max_flip_rate:g}"
        )
    return found.verdict.outcome, found.verdict.reason


def _asked_otherwise(pair: Pair) -> str | None:
    """Why a baseline says nothing of tonight's answers; null: it was asked alike."""
    lines = (*pair.asked, *pair.departures)
    other = [line for line in lines if not line.startswith(_SOFTWARE)]
    if not other:
        return None
    return f"the baseline was asked differently ({'; '.join(other)}); accept a new one"


def _changed(pair: _Pair) -> Iterator[str]:
    """What differs from the baseline: what answers are made of, versions, commit, machine."""
    first, second = (next(iter(each.values())).record for each in (pair.before, pair.tonight))
    for name in ("versions", "commit", "hardware"):
        yield from differences({name: first[name]}, {name: second[name]})
    found = {
        line
        for setting in pair.shared
        for line in differences(
            _fields(pair.before[setting].answers), _fields(pair.tonight[setting].answers)
        )
    }
    yield from sorted(found)


def _fields(answers: Artifact) -> dict[str, Any]:
    """What answers are made of, without the name of the night."""
    fields = answers.recipe.fields
    return {name: value for name, value in fields.items() if name != "repetition"}
