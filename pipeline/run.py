"""run: compute what is missing, then write the results."""

import time

import polars as pl

from operators.errors import DecodingError, FactsweepError
from pipeline import cluster, dag, progress
from pipeline.plan import Plan, planned
from pipeline.settings import Run
from pipeline.stages import report

_LOOK_EVERY_S = 0.5


def run(settings: Run) -> pl.DataFrame:
    """Do all that a run asks for; returns its metrics.

    Raises:
        InputError: something that was given is wrong.
        DecodingError: too many prompts have no answer; the results are there all the same.
    """
    started = time.monotonic()
    plan = planned(settings)
    if not plan.is_complete():
        compute(plan)
    metrics = report.write(plan, {"total": round(time.monotonic() - started, 1)})
    _check_failed(plan)
    return metrics


def compute(plan: Plan) -> None:
    """Make every artifact of the plan that is not there."""
    import ray

    with cluster.started(plan.run), progress.Bar(f"decode {plan.run.model.name}") as bar:
        tally = progress.tally_actor()
        pending = dag.submit(plan, tally)
        counts: dict[str, float] = {}
        try:
            while pending:
                done, pending = ray.wait(pending, timeout=_LOOK_EVERY_S)
                ray.get(done)
                counts, notes = ray.get(tally.read.remote())
                for note in notes:
                    bar.say(note)
                if counts:
                    bar.show(counts)
        except ray.exceptions.RayTaskError as error:
            raise _ours(error) from error
        if counts:
            bar.close(counts)


def _ours(error: BaseException) -> BaseException:
    """The error of ours that a worker's error is about, or the error itself."""
    seen: BaseException | None = error
    while seen is not None:
        cause = getattr(seen, "cause", None) or seen.__cause__
        if isinstance(seen, FactsweepError) and not hasattr(seen, "cause"):
            return seen
        seen = cause
    return error


def _check_failed(plan: Plan) -> None:
    limit = plan.run.decoding.max_failed_share
    for branch in plan.branches:
        metrics = branch.metrics.read_all("metrics")
        row = metrics.filter(metric="acc_at_1").filter(pl.col("slice").is_null())
        n, failed = row.select("n", "n_failed").row(0)
        if failed > limit * (n + failed):
            raise DecodingError(
                f"{branch.setting.name}: {failed:,} of {n + failed:,} prompts have no answer, more "
                f"than decoding.max_failed_share={limit} allows; their reasons stand in "
                f"{branch.admitted.store.where(branch.admitted.folder)}/errors. All else is there."
            )
