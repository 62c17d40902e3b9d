"""nightly: a named sweep every night, compared with the last accepted baseline.

<results>/<name>-<date>/<model>-<benchmark>-…/   the results of each run
                       /compare/<setting>/       the tables of each comparison
                       /verdict.json             the last file: the verdict on the night
"""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import httpx

from factsweep.operators.errors import FactsweepError, InputError, StoppedError, reason
from factsweep.operators.methods.ability import ABILITIES
from factsweep.operators.metrics.comparing.verdict import WORST_FIRST, Outcome
from factsweep.operators.wording import suggestion
from factsweep.operators.wording.names import check_run, folded
from factsweep.operators.wording.redact import redacted
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.recipe import NoNumber, Share, Text, build
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load as load_run
from factsweep.pipeline.machine import secrets
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import baseline, compare_estimates, estimates, past
from factsweep.pipeline.results.baseline import Baseline
from factsweep.pipeline.results.compare import Compared, Comparison, compared
from factsweep.pipeline.results.compare import settings as comparison_settings
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages.plan import check_budget, planned
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import differences
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

VARIABLE = "FACTSWEEP_NOTIFY_URL"
_TIMEOUT_S = 10.0
_RETRIES = 2
_OF_SETTING = ("run", "setting", "outcome", "reason", "tables", "estimate")
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
        if run.budget is not None and run.answers is not None:
            raise InputError(
                f"budget={run.budget}: the answers in {run.answers} are all there; leave it out."
            )
        if run.budget is not None:
            check_budget(run)
        if any(folded(other.name) == folded(folder) for other in found.values()):
            raise InputError(f"nightly {name} has two runs named {folder}; give one model.name=….")
        # All prompts of a budget are decoded again: they take the canary's place.
        anew = given.fresh or run.budget is not None
        repeats: Literal["all", "canary"] = "all" if anew else "canary"
        decoding = replace(run.decoding, repetition=str(day), repeats=repeats)
        found[measured] = replace(run, name=folder, decoding=decoding)
    return list(found.values())


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
    accepted = next(reversed(baseline.history(label(name), results)), None)
    members = tuple(_member(at, run, accepted) for at, run in enumerate(tonight))
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
        baseline=accepted,
        changed=tuple(dict.fromkeys(line for pair in pairs for line in _changed(pair))),
        settings=tuple(judged),
    )
    content = asdict(found) | {"exit_code": found.exit_code}
    Store(results).put_json(f"{found.name}/verdict.json", content)
    return found


def _member(at: int, run: Run, accepted: Baseline | None) -> Member:
    """A run of a night as one of a study; a part of what the baseline asked has it as control."""
    label = baseline.measured(run.model.name, run.benchmark.name)
    if run.budget is not None and run.control is None and accepted and label in accepted.runs:
        before = baseline.settings(accepted, accepted.runs[label], run.results)
        known = {branch.artifacts["prompts"].folder for branch in before.values()}
        with suppress(FactsweepError):  # what is wrong with a run is said when it is asked
            if all(branch.prompts.folder in known for branch in planned(run).branches):
                run = replace(run, control=accepted.runs[label])
    member = Member(label, float(at), run.seed, run, overrides=())
    if run.budget is not None and member.is_complete:
        raise InputError(
            f"{run.name} has answers to all prompts, and an estimate is not put in their "
            "place; give another --date."
        )
    return member


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


def _paired(run: Run, accepted: Baseline | None) -> _Pair:
    if run.budget is None:
        tonight = past.by_title(run.results, run.name)
        marks: dict[str, str | None] = dict.fromkeys(tonight)
    else:
        part = estimates.read(run.results, run.name)
        tonight, marks = part.branches, {title: part.mark(title) for title in part.branches}
    measured = baseline.measured(run.model.name, run.benchmark.name)
    if accepted is None or (against := accepted.runs.get(measured)) is None:
        return _Pair(run, tonight, marks, None, {})
    return _Pair(run, tonight, marks, against, baseline.settings(accepted, against, run.results))


def _judged(pair: _Pair, given: Nightly, comparison: Comparison) -> Iterator[Judged]:
    name, is_whole = pair.run.name, pair.run.budget is None
    comparisons: Iterable[Compared] = ()
    titles = set[str]()
    if pair.against is None:
        measured = baseline.measured(pair.run.model.name, pair.run.benchmark.name)
        reason = f"no baseline of {measured} is accepted yet{'' if is_whole else _NO_BASELINE}"
    elif is_whole and not _relations(pair.before) & _relations(pair.tonight):
        reason = f"the baseline {pair.against} measured other relations; accept a new one"
    else:
        reason, titles = f"the baseline {pair.against} did not measure it", set(pair.shared)
        compare = compared if is_whole else compare_estimates.compared
        if titles:
            comparisons = compare(pair.against, name, pair.run.results, comparison, anyway=True)
    for found in comparisons:
        yield _judge(pair, found, given.max_flip_rate)
    for setting, mark in pair.marks.items():
        if setting not in titles:
            outcome: Outcome = "not enough evidence"
            yield Judged(name, setting, outcome, reason, pair.against, estimate=mark)


def _relations(branches: Mapping[str, PastBranch]) -> set[str]:
    return {relation for branch in branches.values() for relation in branch.relations}


def _judge(pair: _Pair, found: Compared, max_flip_rate: float) -> Judged:
    setting = found.pair.title
    outcome, reason = judge(found, max_flip_rate)
    night, _, name = pair.run.name.partition("/")
    folder = f"{night}/compare/{name}-{setting.replace(' ', '-')}"
    store = Store(below(pair.run.results, folder))
    write_report(store, found.report)
    judged = Judged(
        run=pair.run.name,
        setting=setting,
        outcome=outcome,
        reason=reason,
        against=pair.against,
        tables=store.where(),
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


def judge(found: Compared, max_flip_rate: float) -> tuple[Outcome, str]:
    """The verdict, unless the two were asked differently, or decoding cannot be trusted."""
    lines = (*found.pair.asked, *found.pair.departures)
    if other := [line for line in lines if not line.startswith(_SOFTWARE)]:
        return "not enough evidence", (
            f"the baseline was asked differently ({'; '.join(other)}); accept a new one"
        )
    noise = found.flip_rates[1] or 0.0
    if noise > max_flip_rate and found.verdict.outcome != "regression":
        return "not enough evidence", (
            f"{noise:.4f} of the canary's answers changed when decoded again, above "
            f"max_flip_rate={max_flip_rate:g}"
        )
    return found.verdict.outcome, found.verdict.reason


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


def check_address(url: str) -> None:
    """Refuse what is no address of the web, without a word of it: it may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            f"--notify or ${VARIABLE} must be an address: https://chat.example.org/hooks/…"
        )


def notify(url: str, name: str, found: Night | BaseException) -> None:
    """POST how a night ended as JSON, without secrets; one that fails changes nothing but the log.

    `text` is for chat systems.
    """
    if isinstance(found, Night):
        outcome, code = str(found.outcome), int(found.exit_code)
        why = " ".join(f"{each.run}, {each.setting}: {each.reason}" for each in found.settings)
    else:
        outcome, code = "failed", 1
        why = str(found) if isinstance(found, FactsweepError) else reason(found)
        if isinstance(found, KeyboardInterrupt):
            code = StoppedError.exit_code
        elif isinstance(found, FactsweepError | OSError):
            code = getattr(found, "exit_code", InputError.exit_code)
    content: dict[str, Any] = {
        "text": f"{name}: {outcome} (exit code {code}). {why}",
        "night": name,
        "outcome": outcome,
        "exit_code": code,
        "host": socket.gethostname(),
    }
    if isinstance(found, Night):
        content["verdict"] = f"{found.results}/{name}/verdict.json"
        content["settings"] = [
            {
                **{field: getattr(each, field) for field in _OF_SETTING},
                "lost": len(each.lost),
                "gained": each.n_gained,
            }
            for each in found.settings
        ]
    unsent = f"the verdict was not sent: {urlsplit(url).hostname}"
    transport = httpx.HTTPTransport(retries=_RETRIES)
    try:
        with httpx.Client(transport=transport, timeout=_TIMEOUT_S) as client:
            client.post(url, json=redacted(content, secrets.known())).raise_for_status()
    except httpx.HTTPStatusError as error:
        LOG.warning("%s answered %s.", unsent, error.response.status_code)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        LOG.warning("%s cannot be reached (%s).", unsent, type(error).__name__)
