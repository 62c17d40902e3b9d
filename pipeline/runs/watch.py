"""Watch a run of another process: its rates, engines, shards and errors, and its first answers."""

import time
from collections.abc import Iterator

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.progress import Pace, line
from factsweep.pipeline.machine.logs import Meter
from factsweep.pipeline.runs import pulse
from factsweep.pipeline.runs.pulse import Pulse
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Branch, Plan, planned
from factsweep.pipeline.storage.lease import Clock
from factsweep.pipeline.storage.store import Store

_LOOK_S = 2.0
_SILENT_S = 60.0  # after which a run that says nothing may be dead
_SHOWN = 8  # answers of a run
_AT_ONCE = 2
_WIDTH = 40


def watch(settings: Run, meter: Meter, clock: Clock = time) -> int:
    """Show how a run gets on until it ends; returns 0 if it is done, 1 if it failed or stopped."""
    plan, answers = planned(settings), _FirstAnswers()
    pace, silent = Pace(), _Silence(clock)
    while True:
        found = pulse.read(settings)
        if (code := _ended(plan, found, meter)) is not None:
            return code
        if found is None:
            meter.show("not begun yet")
        else:
            for text in answers.new(plan):
                meter.say(text)
            pace.add(clock.monotonic(), found.counts)
            rates = line(found.counts, pace.recent(), sure=pace.is_sure())
            meter.show(silent.said(found) or found.why or rates)
        clock.sleep(_LOOK_S)


def _ended(plan: Plan, found: Pulse | None, meter: Meter) -> int | None:
    """Say how the run ended, if it did; returns the exit code."""
    where = Store(plan.run.folder).where()
    if found is None or found.state == "done":
        if not plan.is_complete() and (found is None or plan.run.budget is None):
            return None
        meter.say(f"{meter.title}: done; results in {where}")
        return 0
    if found.state in ("waiting", "running"):
        return None
    why = f": {found.why}" if found.why else ""
    meter.say(f"{meter.title}: {found.state} at {found.at}{why}; log: {where}/logs/")
    return 1


class _Silence:
    """For how long the pulse of a run has stood still."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: Pulse | None = None
        self._since = 0.0

    def said(self, found: Pulse) -> str | None:
        """A sentence, if that is long; null if the run lives."""
        now = self._clock.monotonic()
        if found != self._last:
            self._last, self._since = found, now
        if now - self._since < _SILENT_S:
            return None
        return f"no sign of process {found.pid} on {found.host} since {found.at}"


class _FirstAnswers:
    """The first answers of a run, each of which is told once."""

    def __init__(self) -> None:
        self._seen = set[tuple[str, str]]()
        self._left = _SHOWN

    def new(self, plan: Plan) -> Iterator[str]:
        """Those that were not told yet, a line each."""
        for branch in plan.branches:
            for part in _parts(branch):
                if self._left <= 0:
                    return
                if part not in self._seen:
                    self._seen.add(part)
                    for text in _texts(plan, branch, *part):
                        self._left -= 1
                        yield text


def _parts(branch: Branch) -> Iterator[tuple[str, str]]:
    """What is published of a setting's answers: folders and names of shards and chunks."""
    answers, table = branch.answers, branch.answers.stage
    yield from ((table, name) for name in answers.published(table))
    yield from answers.chunks(table)


def _texts(plan: Plan, branch: Branch, folder: str, name: str) -> list[str]:
    """The first answers of a shard or chunk, with the ends of their prompts; none if it is gone."""
    table, column = branch.answers.stage, plan.run.method.ask.ability.column
    shard = name if folder == table else folder.rpartition("/")[2]
    try:
        rows = branch.answers.read_chunk(table, folder, name)[0].head(_AT_ONCE)
        prompts = with_text(branch.prompts, "prompts", shard).select("prompt_id", asked="text")
    except DamagedFileError:
        return []  # a chunk of a shard that is whole by now
    found = rows.join(prompts, on="prompt_id", how="left").select("asked", column).rows()
    return [f"{branch.title}: {_end(asked)!r} → {_end(answer)!r}" for asked, answer in found]


def _end(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= _WIDTH else f"…{words[-_WIDTH:]}"
