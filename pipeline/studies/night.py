"""nightly: a named sweep every night, compared with the last accepted baseline.

<results>/<name>-<date>/<model>-<benchmark>-…/   the results of each run
                       /compare/<setting>/       the tables of each comparison
                       /verdict.json             the last file: the verdict on the night
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from factsweep.operators.errors import FactsweepError, InputError
from factsweep.operators.methods.ability import ABILITIES
from factsweep.operators.methods.method import Report
from factsweep.operators.metrics.comparing.verdict import WORST_FIRST, Outcome
from factsweep.operators.wording import suggestion
from factsweep.operators.wording.names import check_run, folded
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.recipe import NoNumber, Share, Text, build
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load as load_run
from factsweep.pipeline.results import baseline, compare_estimates, estimates, past
from factsweep.pipeline.results.baseline import Baseline
from factsweep.pipeline.results.compare import Compared, Comparison, compared
from factsweep.pipeline.results.compare import settings as comparison_settings
from factsweep.pipeline.results.pairs import Pair
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages.plan import check_budget, planned
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import differences
from factsweep.pipeline.storage.sealed import seal
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import write_report
from factsweep.pipeline.studies import study
from factsweep.pipeline.studies.asking import ask
from factsweep.pipeline.studies.study import Member, Study, Written

EXIT_CODES: dict[Outcome, int] = {
    "improvement": 0,
    "no change": 0,
    "not enough evidence": 4,
    "regression": 3,
}
# What a nightly measures: software that may change answers, or how they are matched.
_SOFTWARE = (*(f"{ability.answers} software." for ability in ABILITIES), "matched versions")

_NO_BASELINE = (
    "; a full run makes the first: run a night with budget=null, and accept it. An estimate is no "
    "baseline"
)


@dataclass(frozen=True)
class Nightly:
    """A nightly (conf/nightly/<name>.yaml)."""

    runs: Annotated[
        tuple[tuple[Text, ...], ...], NoNumber("each override is a field of conf/ by itself")
    ]
    fresh: Annotated[bool, NoNumber("it sets decoding.repeats, which is part of a recipe")]
    max_flip_rate: Annotated[Share, NoNumber("it says when a verdict is withheld")]
    comparison: Annotated[dict[str, Any], NoNumber("it changes fields of conf/comparison/")]


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
    lines = [[*study.with_studies(line), *overrides] for line in given.runs]
    for each in (one for line in lines for one in study.combined(line)):
        run = load_run(each.overrides)
        measured = baseline.measured(run.model.name, run.benchmark.name)
        if measured in found:
            raise InputError(f"nightly {name} has two runs of {measured}; make them one.")
        if run.method.compare is None:
            raise InputError(f"nightly {name} cannot compare {measured}: it is none of BELIEF.")
        folder = f"{label(name)}-{day}/{run.model.name}-{run.benchmark.name}"
        check_run(folder)
        _check_part(run)
        if any(folded(other.name) == folded(folder) for other in found.values()):
            raise InputError(f"nightly {name} has two runs named {folder}; give one model.name=….")
        found[measured] = _named(run, given, folder, str(day))
    return list(found.values())


def _check_part(run: Run) -> None:
    """Refuse a run whose answers cannot be asked in part, if it has a budget."""
    if run.budget is None:
        return
    if run.answers is not None:
        raise InputError(
            f"budget={run.budget}: the answers in {run.answers} are all there; leave it out."
        )
    check_budget(run)


def _named(run: Run, given: Nightly, name: str, day: str) -> Run:
    # All prompts of a budget are decoded again: they take the canary's place.
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
    members = tuple(_members(tonight, accepted))
    if failed := ask(Study(name, Written(()), members)):
        worst = max((each.error for each in failed), key=lambda error: error.exit_code)
        raise type(worst)(" ".join(f"{each.label}: {each.error}" for each in failed)) from worst
    pairs = [_paired(run, accepted) for run in tonight]
    judged = [each for pair in pairs for each in _judged(pair, given, comparison)]
    outcomes = {each.outcome for each in judged}
    found = Night(
        name=f"{label(name)}-{day}",
        results=Store(results).where(),
        outcome=next((each for each in WORST_FIRST if each in outcomes), "no change"),
        baseline=accepted[0] if accepted else None,
        changed=tuple(dict.fromkeys(line for pair in pairs for line in _changed(pair))),
        settings=tuple(judged),
    )
    name = f"{found.name}/verdict.json"
    content = seal(asdict(found) | {"exit_code": found.exit_code}, name)
    Store(results).put(name, content)
    return found


def _members(tonight: Sequence[Run], accepted: Sequence[Baseline]) -> Iterator[Member]:
    """The runs of a night as those of a study, in the order given."""
    for at, run in enumerate(tonight):
        label = baseline.measured(run.model.name, run.benchmark.name)
        member = Member(label, float(at), run.seed, _controlled(run, accepted), overrides=())
        if run.budget is not None and member.is_complete:
            raise InputError(
                f"{run.name} has answers to all prompts, and an estimate is not put in their "
                "place; give another --date."
            )
        yield member


def _controlled(run: Run, accepted: Sequence[Baseline]) -> Run:
    """The run; with the baseline as control, if it asks a part of what that was asked."""
    against = _against(run, accepted)
    if run.budget is None or run.control is not None or against is None:
        return run
    before = baseline.settings(accepted[0], against, run.results)
    known = {each.artifacts["prompts"].folder for each in before.values()}
    with suppress(FactsweepError):  # what is wrong with a run is said when it is asked
        if all(branch.prompts.folder in known for branch in planned(run).branches):
            return replace(run, control=against)
    return run


@dataclass(frozen=True)
class _Pair:
    """A run of tonight, and the run of the baseline that measured the same; settings by name.

    `marks` say of which part of the prompts each setting of tonight is; null: of all.
    """

    run: Run
    tonight: Mapping[str, PastBranch]
    marks: Mapping[str, str | None]
    against: str | None  # null: none is accepted
    before: Mapping[str, PastBranch]

    @property
    def shared(self) -> list[str]:
        return [setting for setting in self.before if setting in self.tonight]


def _paired(run: Run, accepted: Sequence[Baseline]) -> _Pair:
    if run.budget is None:
        tonight = past.by_title(run.results, run.name)
        marks: dict[str, str | None] = dict.fromkeys(tonight)
    else:
        part = estimates.read(run.results, run.name)
        tonight, marks = part.branches, {title: part.mark(title) for title in part.branches}
    against = _against(run, accepted)
    before = {} if against is None else baseline.settings(accepted[0], against, run.results)
    return _Pair(run, tonight, marks, against, before)


def _against(run: Run, accepted: Sequence[Baseline]) -> str | None:
    """The accepted run that measured the same; null: there is none."""
    measured = baseline.measured(run.model.name, run.benchmark.name)
    return accepted[0].runs.get(measured) if accepted else None


def _judged(pair: _Pair, given: Nightly, comparison: Comparison) -> Iterator[Judged]:
    reason, shared = _unlike(pair), set[str]()
    if reason is None:
        reason, shared = f"the baseline {pair.against} did not measure it", set(pair.shared)
    if shared:
        compare = compared if pair.run.budget is None else compare_estimates.compared
        names = (str(pair.against), pair.run.name, pair.run.results)
        for found in compare(*names, comparison, anyway=True):
            yield _judge(pair, found, given.max_flip_rate)
    for setting, mark in pair.marks.items():
        if setting not in shared:
            outcome: Outcome = "not enough evidence"
            yield Judged(pair.run.name, setting, outcome, reason, pair.against, estimate=mark)


def _unlike(pair: _Pair) -> str | None:
    """Why nothing of a run can be compared; null: some of it may."""
    is_whole = pair.run.budget is None
    if pair.against is None:
        measured = baseline.measured(pair.run.model.name, pair.run.benchmark.name)
        more = "" if is_whole else _NO_BASELINE
        return f"no baseline of {measured} is accepted yet{more}"
    if is_whole and not _relations(pair.before) & _relations(pair.tonight):
        return f"the baseline {pair.against} measured other relations; accept a new one"
    return None


def _relations(branches: Mapping[str, PastBranch]) -> set[str]:
    return {each for branch in branches.values() for each in branch.relations}


def _judge(pair: _Pair, found: Compared, max_flip_rate: float) -> Judged:
    setting = found.pair.title
    outcome, reason = judge(found, max_flip_rate)
    judged = Judged(
        run=pair.run.name,
        setting=setting,
        outcome=outcome,
        reason=reason,
        against=pair.against,
        tables=_write(pair.run, setting, found.report),
        estimate=pair.marks[setting],
    )
    if found.is_estimate:
        return judged
    before, tonight = (each[setting].answers for each in (pair.before, pair.tonight))
    return replace(
        judged,
        reused=before.folder == tonight.folder,
        flip_rate=found.flip_rates[1],
        lost=found.lost,
        n_gained=found.n_gained,
    )


def _write(run: Run, setting: str, report: Report) -> str:
    night, _, name = run.name.partition("/")
    store = Store(below(run.results, f"{night}/compare/{name}-{setting.replace(' ', '-')}"))
    write_report(store, report)
    return store.where()


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
    if pair.against is None:
        return
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
