"""The verb `nightly`: a named sweep, compared with its baseline."""

import argparse
from collections.abc import Iterator
from datetime import date, datetime
from typing import TYPE_CHECKING

from pipeline.commands.compare import lost_and_gained

if TYPE_CHECKING:
    from pipeline.nightly.night import Judged, Night


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command line."""
    codes = "Exit codes: 0 no change or better, 3 regression, 4 not enough evidence."
    command = verbs.add_parser(
        "nightly", help="run a named sweep and compare it with its baseline", description=codes
    )
    command.add_argument("nightly", help="of conf/nightly/, or a YAML file")
    command.add_argument("overrides", nargs="*", help="Hydra overrides, for each of its runs")
    command.add_argument("--date", type=date.fromisoformat, help="the night; default today")
    unit = "print a scheduler's unit for it, and run nothing"
    command.add_argument("--unit", choices=("cron", "systemd", "kubernetes"), help=unit)
    command.set_defaults(run=_nightly)


def _nightly(asked: argparse.Namespace) -> int:
    from pipeline.nightly.night import night

    if asked.unit:
        return _print_unit(asked)
    today = datetime.now().astimezone().date()
    found = night(asked.nightly, asked.overrides, asked.date or today)
    for line in _lines(found, asked.nightly):
        print(line)
    return found.exit_code


def _print_unit(asked: argparse.Namespace) -> int:
    from pipeline.machine import secrets
    from pipeline.nightly.night import load
    from pipeline.nightly.schedule import UNITS, Start

    start = Start.here(asked.nightly, asked.overrides)
    text = UNITS[asked.unit](start, load(asked.nightly).unit)
    secrets.refuse(text, "the unit")
    print(text, end="")
    return 0


def _lines(found: "Night", given: str) -> Iterator[str]:
    """The report of a night, as plain lines for a log."""
    accept = f"factsweep baseline accept {given} {found.name}"
    if found.baseline is None:
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
    yield f"{judged.run}, {judged.setting}: {judged.outcome}: {judged.reason}"
    if judged.tables is None:
        return
    if judged.reused:
        yield "  the answers are the baseline's: nothing that they are made of has changed"
    if judged.flip_rate is not None:
        yield f"  noise floor: {judged.flip_rate:.4f} of the canary's answers differ"
    yield f"  {lost_and_gained(judged.lost, judged.n_gained)}"
    yield f"  tables: {judged.tables}/"
