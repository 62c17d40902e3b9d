"""The verb `nightly`: a named sweep, compared with its baseline."""

import argparse
import os
import shlex
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING

from factsweep.pipeline.commands.arguments import Parser
from factsweep.pipeline.commands.compare import lost_and_gained

if TYPE_CHECKING:
    from factsweep.pipeline.nightly.night import Judged, Night


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    command = verbs.add_parser(
        "nightly",
        description="run a named sweep and compare it with its baseline",
        examples=["factsweep nightly demo", "factsweep nightly demo --unit cron"],
    )
    command.take(
        "nightly",
        keys=None,
        about="NIGHTLY is one of conf/nightly/, or a YAML file; overrides are for each of its "
        "runs. Exit codes: 0 no change or better, 3 regression, 4 not enough evidence.",
    )
    command.add_argument("--date", type=date.fromisoformat, help="the night; default today")
    unit = "print a scheduler's unit for it, and run nothing"
    command.add_argument("--unit", choices=("cron", "systemd", "kubernetes"), help=unit)
    text = "POST the verdict there as JSON, or that the night failed; default $FACTSWEEP_NOTIFY_URL"
    command.add_argument("--notify", metavar="URL", help=text)
    command.set_defaults(run=_nightly)


def _nightly(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.nightly import notify
    from factsweep.pipeline.nightly.night import label, night

    url = asked.notify or os.environ.get(notify.VARIABLE)
    if url:
        notify.check(url)
    if asked.unit:
        return _print_unit(asked)
    day = asked.date or datetime.now().astimezone().date()
    try:
        found = night(asked.nightly, asked.overrides, day)
    except (Exception, KeyboardInterrupt) as error:
        if url:
            notify.post(url, notify.failure(f"{label(asked.nightly)}-{day}", error))
        raise
    if url:
        notify.post(url, notify.verdict(found))
    for line in _lines(found, asked.nightly, _where(asked)):
        print(line)
    return found.exit_code


def _where(asked: argparse.Namespace) -> list[str]:
    """What was typed that says where results and the user's own configuration lie."""
    own = ["--config-dir", asked.config_dir] if asked.config_dir else []
    return [*(each for each in asked.overrides if each.startswith("results=")), *own]


def _print_unit(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.machine import secrets
    from factsweep.pipeline.nightly.night import load
    from factsweep.pipeline.nightly.schedule import UNITS, Start

    notified = ["--notify", asked.notify] if asked.notify else []
    start = Start.here(asked.nightly, [*asked.overrides, *notified])
    text = UNITS[asked.unit](start, load(asked.nightly).unit)
    secrets.refuse(text, "the unit")
    print(text, end="")
    return 0


def _lines(found: "Night", given: str, where: Sequence[str]) -> Iterator[str]:
    """The report of a night, as plain lines for a log; `where` says where things lie."""
    accept = shlex.join(["factsweep", "baseline", "accept", given, found.name, *where])
    if found.baseline is None and any(each.estimate for each in found.settings):
        yield "no baseline is accepted yet, and an estimate cannot be one"
    elif found.baseline is None:
        yield f"no baseline is accepted yet; if these results are to be it: {accept}"
    else:
        accepted = found.baseline
        yield f"compared with {accepted.run}, accepted by {accepted.accepted_by}"
        yield from (f"changed since: {line}" for line in found.changed)
        if not found.changed:
            yield "nothing has changed since: weights, engine, versions, commit, machine"
    for judged in found.settings:
        yield from _setting_lines(judged)
    where = f"{found.results}/{found.name}/verdict.json"
    yield f"{found.name}: {found.outcome} (exit code {found.exit_code}), {where}"


def _setting_lines(judged: "Judged") -> Iterator[str]:
    mark = f" ({judged.estimate})" if judged.estimate else ""
    yield f"{judged.run}, {judged.setting}{mark}: {judged.outcome}: {judged.reason}"
    if judged.tables is None:
        return
    if judged.reused:
        yield "  the answers are the baseline's: nothing that they are made of has changed"
    if judged.flip_rate is not None:
        yield f"  noise floor: {judged.flip_rate:.4f} of the canary's answers differ"
    if judged.estimate is None:
        yield f"  {lost_and_gained(judged.lost, judged.n_gained)}"
    yield f"  tables: {judged.tables}/"
