"""The cost of checking each shard against its manifest, relative to aggregating.

Makes a set of MyriadLAMA's size with made-up answers, as bench_metrics.py does. Then measures, each
in a process of its own:

    aggregate  the stage `aggregate`, and the share of its time spent on checks:
               manifests read and compared, the SHA-256 of every shard
    verify     every byte of every artifact from facts to metrics, as `factsweep verify` reads it

    python benchmarks/bench_reads.py [--scale 0.1]
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench_expand import alone, make_rows, show
from bench_metrics import make_matched, publish

from factsweep.pipeline.config import settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.runs.verify import verify_store
from factsweep.pipeline.stages.plan import build_plan
from factsweep.pipeline.storage.artifact import Artifact

MOST = 0.05


def main() -> None:
    """Make the answers, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pairs (1: all)")
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory(prefix="bench-reads-") as folder:
        alone(make_rows, Path(folder) / "rows", scale)
        overrides = ["benchmark=myriadlama", f"benchmark.path={folder}/rows", "prompt=zero-shot"]
        overrides += ["decoding.canary_prompts=0", f"artifacts={folder}/artifacts"]
        run = settings.load([*overrides, "metrics.analyses=[]"])
        show("(answers made)", alone(publish, run))
        show("(matched)", alone(make_matched, run))
        measured = alone(milliseconds_of_checks, run)
        share = measured.rows / 1000 / measured.seconds
        holds = "holds" if share < MOST else "MISSED"
        note = (
            f"{measured.rows:,} ms of checks, {share:.1%} of the stage; target {MOST:.0%}: {holds}"
        )
        show("aggregate", measured._replace(rows=0), note)
        show("verify", alone(read_all, run.artifacts))


def milliseconds_of_checks(run: Run) -> int:
    """The stage `aggregate`; returns the time that its checks took."""
    (branch,) = build_plan(run).branches
    spent = [0.0]
    with (
        patch.object(hashlib, "sha256", timed(hashlib.sha256, spent)),
        patch.object(Artifact, "_listed_sha256", timed(Artifact._listed_sha256, spent)),
        patch.object(Artifact, "is_complete", timed(Artifact.is_complete, spent)),
    ):
        branch.step(branch.metrics).run()
    return round(1000 * spent[0])


def timed(work: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """The function; its time is added to the total."""

    def with_time(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return work(*arguments, **options)
        finally:
            spent[0] += time.perf_counter() - began

    return with_time


def read_all(root: str) -> int:
    """Every artifact of a store; returns the number of its shards."""
    findings = verify_store(root)
    assert findings.problems == [], findings.problems
    return findings.shards


if __name__ == "__main__":
    main()
