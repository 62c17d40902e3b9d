"""nightly: a named sweep every night, compared with the last accepted baseline.

<results>/<name>-<date>/<model>-<benchmark>-…/   the results of each run
                       /compare/<setting>/       the tables of each comparison
                       /verdict.json             the verdict on the night, written last
"""

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import httpx

from factsweep.operators.errors import (
    FactsweepError,
    InputError,
    StoppedError,
    collect_faults,
    reason,
)
from factsweep.operators.methods.method import ABILITIES
from factsweep.operators.metrics.comparing.verdict import WORST_FIRST, Outcome
from factsweep.operators.wording import join_sentences, suggestion
from factsweep.operators.wording.redaction import redact
from factsweep.operators.wording.safe_names import check_run, fold_name
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.recipe import NoNumber, Share, Text, build
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load as load_run
from factsweep.pipeline.machine import secrets
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import baseline, past_runs
from factsweep.pipeline.results.baseline import Baseline
from factsweep.pipeline.results.compare import ComparedRuns, Comparison, compare_runs
from factsweep.pipeline.results.compare import settings as comparison_settings
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.storage.artifact import differences
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import write_report
from factsweep.pipeline.studies import study
from factsweep.pipeline.studies.study import Member, Study, StudyFile, ask_members

EXIT_CODES: Mapping[Outcome, int] = {
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
_SENT = ("run", "setting", "outcome", "reason", "tables")


@dataclass(frozen=True)
class Nightly:
    """A nightly (conf/nightly/<name>.yaml)."""

    runs: Annotated[
        tuple[tuple[Text, ...], ...], NoNumber("each override is a field of conf/ by itself")
    ]
    fresh: Annotated[bool, NoNumber("it sets decoding.repeats, which is part of a recipe")] = False
    max_flip_rate: Annotated[Share, NoNumber("it says when a verdict is withheld")] = 0.05
    comparison: Annotated[dict[str, Any], NoNumber("it changes fields of conf/comparison/")] = (
        field(default_factory=dict)
    )


@dataclass(frozen=True)
class JudgedSetting:
    """The verdict on one setting, and its evidence."""

    run: str
    setting: str
    outcome: Outcome
    reason: str
    against: str | None = None
    reused: bool = False  # the answers are the baseline's; only the canary was decoded again
    flip_rate: float | None = None
    lost: tuple[str, ...] = ()
    n_gained: int = 0
    tables: str | None = None


@dataclass(frozen=True)
class Night:
    """The verdict on all settings; the worst of them decides."""

    name: str
    results: str
    outcome: Outcome
    baseline: Baseline | None
    changed: tuple[str, ...]
    settings: tuple[JudgedSetting, ...]

    @property
    def exit_code(self) -> Literal[0, 3, 4]:
        """0: no change or better; 3: a regression; 4: not enough evidence."""
        return EXIT_CODES[self.outcome]  # type: ignore[return-value]


def label(name: str) -> str:
    """The name of a nightly that may be given as the path of its file."""
    return Path(name).stem


def night_name(name: str, day: date) -> str:
    """The name of a night, which is that of its folder."""
    return f"{label(name)}-{day}"


class NightName(NamedTuple):
    """The parts of the name of a night, or of a run of it."""

    nightly: str
    day: date


def split_night(name: str) -> NightName | None:
    """The parts of the name of a night, or of a run of it; None if it is another name.

    >>> split_night("demo-2026-11-21/gpt2-myriadlama")
    NightName(nightly='demo', day=datetime.date(2026, 11, 21))
    >>> split_night("demo"), split_night("demo-2026-11-31")
    (None, None)
    """
    parts = re.fullmatch(r"(.+)-(\d{4}-\d{2}-\d{2})", name.partition("/")[0])
    try:
        return parts and NightName(parts[1], date.fromisoformat(parts[2]))
    except ValueError:
        return None


def has_begun(name: str, results: str, *, besides: str = "") -> bool:
    """Whether a nightly of this name has a baseline or a night, but for an open one `besides`."""
    store = Store(results)
    if f"{name}.json" in store.names("baselines") or store.exists(f"{besides}/verdict.json"):
        return True
    nights = (split_night(folder) for folder in store.folders("") if folder != besides)
    return any(night is not None and night.nightly == name for night in nights)


def find_label(name: str, results: str) -> str:
    """The name that the baselines of a nightly have; its file may be elsewhere, if it has begun.

    Raises:
        InputError: there is no such nightly.
    """
    is_file = name.endswith(".yaml") or name in folders.files("nightly")
    if is_file or not has_begun(name, results):
        load(name)
    return label(name)


def load(name: str) -> Nightly:
    """The nightly of that name in conf/nightly/, or in the named YAML file.

    Raises:
        InputError: there is no such nightly, or its fields or its runs do not fit; it names every
            fault.
    """
    paths = folders.files("nightly")
    path = Path(name) if name.endswith(".yaml") else paths.get(name)
    if path is None or not path.is_file():
        raise InputError(
            f"there is no nightly {name!r}; conf/nightly/ has {', '.join(paths)}, and a YAML file "
            f"may be one.{suggestion(name, paths)}"
        )
    content, faults = folders.content(path), list[str]()
    with collect_faults(faults):
        nightly = build(Nightly, content, path.name)
    given = content if isinstance(content, dict) else {}
    if isinstance(given.get("comparison"), dict):
        with collect_faults(faults):
            comparison_settings(given["comparison"])
    for line in given["runs"] if faults and isinstance(given.get("runs"), list) else ():
        if isinstance(line, list) and all(isinstance(override, str) for override in line):
            with collect_faults(faults):
                _load_line(line)
    if faults:
        raise InputError(join_sentences(faults))
    return nightly


def _load_line(overrides: Sequence[str]) -> list[Run]:
    """The runs of some overrides, which may name a study."""
    expanded_runs = study.combine_overrides(study.with_studies(overrides))
    return [load_run(expanded.overrides) for expanded in expanded_runs]


def runs(name: str, overrides: Sequence[str], day: date) -> list[Run]:
    """The runs of a night, each with a name of its own under that of the night.

    Raises:
        InputError: one cannot be run or compared, or two measure the same; it names every fault.
    """
    nightly = load(name)
    if not nightly.runs:
        raise InputError(f"nightly {name} has no runs; give it one, a list of overrides.")
    runs_by_subject, faults = dict[str, Run](), list[str]()
    repeats: Literal["all", "canary"] = "all" if nightly.fresh else "canary"
    for line in nightly.runs:
        with collect_faults(faults):
            for run in _load_line([*line, *overrides]):
                with collect_faults(faults):
                    subject = baseline.format_subject(run.model.name, run.benchmark.name)
                    folder = f"{night_name(name, day)}/{run.model.name}-{run.benchmark.name}"
                    _check_run(name, run, folder, runs_by_subject)
                    decoding = replace(run.decoding, repetition=str(day), repeats=repeats)
                    runs_by_subject[subject] = replace(run, name=folder, decoding=decoding)
    if faults:
        raise InputError(join_sentences(faults))
    return list(runs_by_subject.values())


def _check_run(name: str, run: Run, folder: str, runs_by_subject: Mapping[str, Run]) -> None:
    """Refuse a run of a night that cannot be compared, or that is there already."""
    subject = baseline.format_subject(run.model.name, run.benchmark.name)
    if subject in runs_by_subject:
        raise InputError(f"nightly {name} has two runs of {subject}; make them one.")
    if run.method.compare is None:
        raise InputError(f"nightly {name} cannot compare {subject}: it is none of BELIEF.")
    if run.budget is not None:
        raise InputError(
            f"nightly {name} asks all prompts, and budget={run.budget} a part; leave it out."
        )
    check_run(folder)
    if any(fold_name(other.name) == fold_name(folder) for other in runs_by_subject.values()):
        raise InputError(f"nightly {name} has two runs named {folder}; give one model.name=….")


def night(name: str, overrides: Sequence[str], day: date) -> Night:
    """Measure all runs, or resume, compare them with the baseline, and write the verdict.

    Raises:
        InputError: the nightly, an override or a run cannot be used, or the baseline is this night
            or a later one.
        DecodingError: too many prompts of a run have no answer.
    """
    nightly = load(name)
    comparison = comparison_settings(nightly.comparison)
    members = tuple(
        Member(
            baseline.format_subject(run.model.name, run.benchmark.name),
            float(index),
            run.seed,
            run,
            (),
        )
        for index, run in enumerate(runs(name, overrides, day))
    )
    results = members[0].run.results
    accepted = next(reversed(baseline.history(label(name), results)), None)
    if accepted is not None:
        _check_later(night_name(name, day), day, accepted)
    if failures := ask_members(Study(name, StudyFile(()), members)):
        worst = max((failure.error for failure in failures), key=lambda error: error.exit_code)
        text = " ".join(f"{failure.label}: {failure.error}" for failure in failures)
        raise type(worst)(text) from worst
    pairs = [_pair(member, accepted) for member in members]
    settings = [judged for pair in pairs for judged in _judge_run(pair, nightly, comparison)]
    outcomes = {judged.outcome for judged in settings}
    verdict = Night(
        name=night_name(name, day),
        results=Store(results).where(),
        outcome=next((outcome for outcome in WORST_FIRST if outcome in outcomes), "no change"),
        baseline=accepted,
        changed=tuple(dict.fromkeys(line for pair in pairs for line in _changes(pair))),
        settings=tuple(settings),
    )
    content = asdict(verdict) | {"exit_code": verdict.exit_code}
    Store(results).put_json(f"{verdict.name}/verdict.json", content)
    return verdict


def _check_later(name: str, day: date, accepted: Baseline) -> None:
    """Refuse a night that is the baseline itself, or is of a date before it."""
    parts = split_night(accepted.run)
    if parts is None or day > parts.day:  # a run of any name has no date
        return
    by = f"accepted by {accepted.accepted_by} at {accepted.accepted_at}"
    fix = f"give a --date after {parts.day}, or accept another run"
    if accepted.run.partition("/")[0] == name:
        raise InputError(
            f"{name} is its own baseline, {by}, so a comparison would show no change; {fix}."
        )
    if day < parts.day:
        raise InputError(f"{name} is of a date before its baseline {accepted.run}, {by}; {fix}.")


@dataclass(frozen=True)
class _Pair:
    """A run of tonight, and the run of the baseline that measured the same; settings by name."""

    subject: str
    run: Run
    tonight: Mapping[str, PastBranch]
    against: str | None  # null: no baseline is accepted
    earlier: Mapping[str, PastBranch]

    @property
    def shared_settings(self) -> list[str]:
        return [setting for setting in self.earlier if setting in self.tonight]


def _pair(member: Member, accepted: Baseline | None) -> _Pair:
    run = member.run
    tonight = past_runs.by_title(run.results, run.name)
    if accepted is None or (against := accepted.runs.get(member.label)) is None:
        return _Pair(member.label, run, tonight, None, {})
    earlier = baseline.settings(accepted, against, run.results)
    return _Pair(member.label, run, tonight, against, earlier)


def _judge_run(pair: _Pair, nightly: Nightly, comparison: Comparison) -> Iterator[JudgedSetting]:
    name, settings = pair.run.name, set[str]()
    if pair.against is None:
        cause = f"no baseline of {pair.subject} is accepted yet"
    elif not _relations(pair.earlier) & _relations(pair.tonight):
        cause = f"the baseline {pair.against} measured other relations; accept a new one"
    else:
        cause, settings = (
            f"the baseline {pair.against} did not measure it",
            set(pair.shared_settings),
        )
    if settings and pair.against is not None:
        runs = pair.against, name, pair.run.results
        for result in compare_runs(*runs, comparison, anyway=True, is_baseline=True):
            yield _judge_setting(pair, result, nightly.max_flip_rate)
    for setting in pair.tonight:
        if setting not in settings:
            yield JudgedSetting(name, setting, "not enough evidence", cause, pair.against)


def _relations(branches: Mapping[str, PastBranch]) -> set[str]:
    return {relation for branch in branches.values() for relation in branch.relations}


def _judge_setting(pair: _Pair, result: ComparedRuns, max_flip_rate: float) -> JudgedSetting:
    setting = result.pair.title
    outcome, cause = judge(result, max_flip_rate)
    folder, _, name = pair.run.name.partition("/")
    folder = f"{folder}/compare/{name}-{setting.replace(' ', '-')}"
    store = Store(below(pair.run.results, folder))
    write_report(store, result.report)
    earlier, tonight = (branches[setting].answers for branches in (pair.earlier, pair.tonight))
    return JudgedSetting(
        run=pair.run.name,
        setting=setting,
        outcome=outcome,
        reason=cause,
        against=pair.against,
        reused=earlier.folder == tonight.folder,
        flip_rate=result.flip_rates[1],
        lost=result.lost_facts,
        n_gained=result.n_gained,
        tables=store.where(),
    )


def judge(result: ComparedRuns, max_flip_rate: float) -> tuple[Outcome, str]:
    """The verdict, unless the two were asked differently, or decoding cannot be trusted."""
    lines = (*result.pair.prompt_differences, *result.pair.departures)
    if departures := [line for line in lines if not line.startswith(_SOFTWARE)]:
        return "not enough evidence", (
            f"the baseline was asked differently ({'; '.join(departures)}); accept a new one"
        )
    noise = result.flip_rates[1] or 0.0
    if noise > max_flip_rate and result.verdict.outcome != "regression":
        return "not enough evidence", (
            f"{noise:.4f} of the canary's answers changed when decoded again, above "
            f"max_flip_rate={max_flip_rate:g}"
        )
    return result.verdict.outcome, result.verdict.reason


def _changes(pair: _Pair) -> Iterator[str]:
    """Lines on versions, commit, machine and recipes of answers that differ from the baseline's."""
    if pair.against is None:
        return
    sides = pair.earlier, pair.tonight
    first, second = (next(iter(branches.values())).record for branches in sides)
    for name in ("versions", "commit", "hardware"):
        yield from differences({name: first[name]}, {name: second[name]})
    lines = set[str]()
    for setting in pair.shared_settings:
        old, new = (dict(branches[setting].answers.recipe.fields) for branches in sides)
        # The name of the night differs in any case.
        lines |= set(differences(old | {"repetition": None}, new | {"repetition": None}))
    yield from sorted(lines)


def notify(url: str, name: str, ending: Night | BaseException) -> None:
    """POST how a night ended as JSON, without secrets; a failed request is only logged.

    `text` is for chat systems.
    """
    content: dict[str, Any] = {"night": name, "host": socket.gethostname()}
    if isinstance(ending, Night):
        outcome, code = str(ending.outcome), int(ending.exit_code)
        details = " ".join(
            f"{judged.run}, {judged.setting}: {judged.reason}" for judged in ending.settings
        )
        content["verdict"] = f"{ending.results}/{name}/verdict.json"
        content["settings"] = [
            {
                **{field: getattr(judged, field) for field in _SENT},
                "lost": len(judged.lost),
                "gained": judged.n_gained,
            }
            for judged in ending.settings
        ]
    else:
        outcome, code = "failed", 1
        details = str(ending) if isinstance(ending, FactsweepError) else reason(ending)
        if isinstance(ending, KeyboardInterrupt):
            code = StoppedError.exit_code
        elif isinstance(ending, FactsweepError | OSError):
            code = getattr(ending, "exit_code", InputError.exit_code)
    text = f"{name}: {outcome} (exit code {code}). {details}"
    content |= {"text": text, "outcome": outcome, "exit_code": code}
    unsent = f"the verdict was not sent: {urlsplit(url).hostname}"
    transport = httpx.HTTPTransport(retries=_RETRIES)
    try:
        with httpx.Client(transport=transport, timeout=_TIMEOUT_S) as client:
            client.post(url, json=redact(content, secrets.collect_secrets())).raise_for_status()
    except httpx.HTTPStatusError as error:
        LOG.warning("%s answered %s.", unsent, error.response.status_code)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        LOG.warning("%s cannot be reached (%s).", unsent, type(error).__name__)
