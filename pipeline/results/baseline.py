"""Baselines: the run that a nightly is compared with, and those before it.

<results>/baselines/<nightly>.json   every accepted run, the last one last; only `accept` writes it
"""

import getpass
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.results import past
from factsweep.pipeline.results.past import PastBranch, answered
from factsweep.pipeline.storage.json_files import RERUN
from factsweep.pipeline.storage.store import Store

_FIX = "; move it away, and accept the run that nights are to be compared with."


@dataclass(frozen=True)
class Baseline:
    """An accepted run, or a night of several: who accepted it, and what it holds."""

    run: str
    accepted_by: str
    accepted_at: str
    commit: str | None
    verdict: str | None
    runs: dict[str, str]  # one name per model and benchmark
    metrics: dict[str, str]  # the artifact of each setting of each run


def accept(nightly: str, run: str, results: str) -> Baseline:
    """Compare a nightly with this run from now on; earlier baselines stay listed.

    Raises:
        InputError: there is no such run, it is not whole, or its artifacts are gone.
    """
    if parts := past.estimated(results, run):
        raise InputError(
            f"{parts[0]} in {results} has estimates from a part of the prompts, and a baseline is "
            "of all of them; run it with budget=null, then accept that."
        )
    verdict = _verdict(results, run)
    names = past.runs(results, run)
    branches = past.branches(results, names)
    for branch in branches:
        n, failed = answered(branch.metrics.read_all("metrics"), branch.how)
        if failed > branch.record["run"]["decoding"]["max_failed_share"] * (n + failed):
            raise InputError(
                f"{branch.run} is no baseline: {failed:,} of {n + failed:,} prompts of {branch} "
                "have no answer; run it again, or accept another run."
            )
    accepted = Baseline(
        run=run,
        accepted_by=_user(),
        accepted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=branches[0].record["commit"],
        verdict=verdict,
        runs={measured(branch.model, branch.benchmark): branch.run for branch in branches},
        metrics={str(branch): branch.metrics.folder for branch in branches},
    )
    listed = [asdict(each) for each in (*history(nightly, results), accepted)]
    Store(results).put_json(_name(nightly), {"accepted": listed})
    return accepted


def history(nightly: str, results: str) -> list[Baseline]:
    """All that were ever accepted, the last one last.

    Raises:
        DamagedFileError: the list is not what was written.
    """
    store, name = Store(results), _name(nightly)
    where = store.where(name)
    try:
        listed = store.get_json(name, "accepted", fix=_FIX)["accepted"]
    except FileNotFoundError:
        return []
    return [build(Baseline, each, f"{where}, {place}") for place, each in enumerate(listed)]


def settings(accepted: Baseline, run: str, results: str) -> dict[str, PastBranch]:
    """The settings of an accepted run by name, as they were accepted.

    Raises:
        InputError: the run was run again since, and measured something else.
    """
    found = past.branches(results, [run])
    now = {str(branch): branch.metrics.folder for branch in found}
    start, end = f"{found[0].model}, ", f" on {found[0].benchmark}"
    then = {
        name: folder
        for name, folder in accepted.metrics.items()
        if name in now or (name.startswith(start) and name.endswith(end))
    }
    if then != now:
        raise InputError(
            f"{run} is not what {accepted.accepted_by} accepted at {accepted.accepted_at}: it was "
            "run again, and measured something else; run it as it was, or accept another run."
        )
    return {branch.setting: branch for branch in found}


def measured(model: str, benchmark: str) -> str:
    """What a run measured, by which the runs of two nights are paired."""
    return f"{model} on {benchmark}"


def _name(nightly: str) -> str:
    return f"baselines/{nightly}.json"


def _verdict(results: str, run: str) -> str | None:
    """The outcome of a night; null for a run of its own."""
    store = Store(results)
    name = f"{run}/verdict.json"
    if store.exists(name):
        return str(store.get_json(name, "outcome", fix=RERUN)["outcome"])
    if past.runs(results, run) != [run]:
        raise InputError(
            f"{store.where(run)} has no verdict.json: that night did not end; "
            "run it again, then accept it."
        )
    return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"
