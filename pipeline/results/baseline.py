"""Baselines: <results>/baselines/<nightly>.json lists the accepted runs, the newest last."""

import getpass
import os
from dataclasses import asdict, dataclass

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.results import past_runs
from factsweep.pipeline.results.past_runs import PastBranch, count_answered
from factsweep.pipeline.results.run_record import format_now
from factsweep.pipeline.storage.store import RERUN, Store

_FIX = "; move it away, and accept the run that nights are to be compared with."


@dataclass(frozen=True)
class Baseline:
    """An accepted run, or a night of several runs."""

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
        InputError: there is no such run, it is incomplete, or its artifacts are gone.
    """
    if estimates := past_runs.list_estimated(results, run):
        raise InputError(
            f"{estimates[0]} in {results} has estimates from a part of the prompts; a baseline "
            "needs all prompts. Run it with budget=null, then accept that."
        )
    store, names = Store(results), past_runs.runs(results, run)
    verdict = None
    if store.exists(f"{run}/verdict.json"):
        verdict = str(store.get_json(f"{run}/verdict.json", "outcome", fix=RERUN)["outcome"])
    elif names != [run]:
        raise InputError(
            f"{store.where(run)} has no verdict.json: that night did not end; run it again, then "
            "accept it."
        )
    branches = past_runs.branches(results, names)
    for branch in branches:
        n, failed = count_answered(branch.metrics.read_all("metrics"), branch.benchmark_method)
        if failed > branch.record["run"]["decoding"]["max_failed_share"] * (n + failed):
            raise InputError(
                f"{branch.run} is no baseline: {failed:,} of {n + failed:,} prompts of {branch} "
                "have no answer; run it again, or accept another run."
            )
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = f"user {os.getuid()}"
    accepted = Baseline(
        run=run,
        accepted_by=user,
        accepted_at=format_now(),
        commit=branches[0].record["commit"],
        verdict=verdict,
        runs={format_subject(branch.model, branch.benchmark): branch.run for branch in branches},
        metrics={str(branch): branch.metrics.folder for branch in branches},
    )
    rows = [asdict(baseline) for baseline in (*history(nightly, results), accepted)]
    store.put_json(_baseline_path(nightly), {"accepted": rows})
    return accepted


def history(nightly: str, results: str) -> list[Baseline]:
    """All baselines of a nightly, the newest last.

    Raises:
        DamagedFileError: the list is damaged.
    """
    store, name = Store(results), _baseline_path(nightly)
    try:
        rows = store.get_json(name, "accepted", fix=_FIX)["accepted"]
    except FileNotFoundError:
        return []
    return [build(Baseline, row, f"{store.where(name)}, {i}") for i, row in enumerate(rows)]


def settings(accepted: Baseline, run: str, results: str) -> dict[str, PastBranch]:
    """The settings of an accepted run by name, as they were accepted.

    Raises:
        InputError: a later run of that name measured something else.
    """
    branches = past_runs.branches(results, [run])
    folders = {str(branch): branch.metrics.folder for branch in branches}
    start, end = f"{branches[0].model}, ", f" on {branches[0].benchmark}"
    accepted_folders = {
        name: folder
        for name, folder in accepted.metrics.items()
        if name in folders or (name.startswith(start) and name.endswith(end))
    }
    if accepted_folders != folders:
        raise InputError(
            f"{run} is not what {accepted.accepted_by} accepted at {accepted.accepted_at}: it was "
            "run again, and measured something else; run it as it was, or accept another run."
        )
    return {branch.setting: branch for branch in branches}


def format_subject(model: str, benchmark: str) -> str:
    """The subject of a run, which pairs the runs of two nights."""
    return f"{model} on {benchmark}"


def _baseline_path(nightly: str) -> str:
    return f"baselines/{nightly}.json"
