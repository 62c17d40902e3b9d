"""The verbs `nightly` and `baseline`: a named sweep, and the run that it is compared with."""

import argparse
import os
import shlex
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING

from factsweep.pipeline.commands.arguments import Parser, places
from factsweep.pipeline.commands.compare import lost_and_gained

if TYPE_CHECKING:
    from factsweep.pipeline.studies.night import Judged, Night


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verbs to the command line."""
    command = verbs.add_parser(
        "nightly",
        description="run a named sweep and compare it with its baseline",
        examples=["factsweep nightly demo", "factsweep nightly demo --date 2026-11-20"],
    )
    command.take(
        "nightly",
        keys=None,
        about="NIGHTLY is one of conf/nightly/, or a YAML file; overrides are for each of its "
        "runs. Exit codes: 0 no change or better, 3 regression, 4 not enough evidence.",
        run=_nightly,
    )
    command.option("--date", "the night; default today", type=date.fromisoformat)
    text = "POST the verdict there as JSON, or that the night failed; default $FACTSWEEP_NOTIFY_URL"
    command.option("--notify", text, metavar="URL")
    _add_baseline(verbs)


def _add_baseline(verbs: "argparse._SubParsersAction[Parser]") -> None:
    command = verbs.add_parser(
        "baseline",
        description="accept or show the run that a nightly is compared with",
        examples=["factsweep baseline accept demo demo-2026-11-20", "factsweep baseline show demo"],
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    text = "compare a nightly with this run from now on"
    accept = actions.add_parser("accept", help=text, description=text)
    accept.take(
        *("nightly", "accepted"),
        about="NIGHTLY is one of conf/nightly/, or a YAML file; ACCEPTED a night "
        "(demo-2026-11-21), or a run.",
        run=_accept,
    )
    text = "list the accepted runs, the last one first"
    show = actions.add_parser("show", help=text, description=text)
    show.take("nightly", about="NIGHTLY is one of conf/nightly/, or a YAML file.", run=_show)


def _nightly(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.studies import notify
    from factsweep.pipeline.studies.night import label, night

    url = asked.notify or os.environ.get(notify.VARIABLE)
    if url:
        notify.check(url)
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


def _accept(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.results import baseline
    from factsweep.pipeline.studies import night

    night.load(asked.nightly)
    name = night.label(asked.nightly)
    found = baseline.accept(name, asked.accepted, places(asked)["results"])
    runs = ", ".join(found.runs)
    print(f"{name} is compared with {found.run} from now on ({runs}).")
    return 0


def _show(asked: argparse.Namespace) -> int:
    from factsweep.operators.errors import InputError
    from factsweep.pipeline.results import baseline
    from factsweep.pipeline.studies import night

    night.load(asked.nightly)
    name = night.label(asked.nightly)
    where = places(asked)["results"]
    found = baseline.history(name, where)
    if not found:
        words = ["baseline", "accept", asked.nightly, "RUN", *asked.overrides]
        fix = shlex.join(["factsweep", *words])
        raise InputError(
            f"{name} has no baseline; accept one with: {fix}. Runs are the folders in {where}."
        )
    for each in reversed(found):
        verdict = f", verdict {each.verdict}" if each.verdict else ""
        print(
            f"{each.accepted_at}  {each.run}  by {each.accepted_by}, "
            f"commit {(each.commit or 'unknown')[:12]}{verdict}"
        )
    return 0
