"""Planning a resume at MyriadLAMA's full size: the pipeline and an anti-join of all answers.

Makes a set of MyriadLAMA's size (bench_expand.py), publishes answers for nine of ten shards and
some chunks of the next one, as a sweep that was killed leaves them, then measures, each in a
process of its own:

    resume   the shards that are missing and the answers that they lack, as `factsweep run` asks
    status   `factsweep status`
    anti-join  the peer: the ids of all prompts without the ids of all answers, read with Polars

    python benchmarks/bench_resume.py [--scale 0.1]
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from bench_expand import alone, make_rows, show

from factsweep.operators.schemas import empty
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.remaining_prompts import list_work
from factsweep.pipeline.runs import status as listing
from factsweep.pipeline.stages.plan import Branch, build_plan

ROWS_PER_CHUNK, N_CHUNKS, TENTHS_DONE = 512, 10, 9


def main() -> None:
    """Make the artifacts, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pairs (1: all)")
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory(prefix="bench-resume-") as folder:
        alone(make_rows, Path(folder) / "rows", scale)
        overrides = ["benchmark=myriadlama", f"benchmark.path={folder}/rows", "prompt=zero-shot"]
        greedy = ["decoding=greedy", "decoding.canary_prompts=0", f"artifacts={folder}/artifacts"]
        run = settings.load([*overrides, *greedy])
        show("(answers published)", alone(publish, run))
        ours = alone(resume, run)
        show("resume", ours)
        show("status", alone(status, run))
        peer = alone(anti_join, run)
        show("anti-join", peer, f"{peer.seconds / ours.seconds:.1f} × the pipeline's time")
        assert ours.rows == peer.rows, "both must find the same answers missing"


def publish(run: Run) -> int:
    """Write the artifacts of a killed sweep; returns the number of answers."""
    (branch,) = build_plan(run).branches
    branch.step(branch.facts).run()
    branch.step(branch.prompts).run()
    shards = branch.prompts.shards("prompts")
    for shard in shards:
        branch.admitted.write("errors", shard, empty("errors"))
    branch.admitted.finish(["errors"])
    return _answer(branch, shards)


def _answer(branch: Branch, shards: Sequence[str]) -> int:
    n_done, n_rows = len(shards) * TENTHS_DONE // 10, 0
    for shard in shards[:n_done]:
        answers = _answers(branch, shard)
        branch.answers.write("generations", shard, answers, {"seconds": 1.0})
        n_rows += answers.height
    part = shards[n_done]
    for number, chunk in enumerate(_answers(branch, part).iter_slices(ROWS_PER_CHUNK)):
        if number < N_CHUNKS:
            folder = f"chunks/generations/{part}"
            branch.answers.write_chunk("generations", folder, f"{number:016x}", chunk)
            n_rows += chunk.height
    return n_rows


def _answers(branch: Branch, shard: str) -> pl.DataFrame:
    prompts = branch.prompts.read("prompts", shard).filter(pl.col("same_as").is_null())
    return prompts.select(
        "prompt_id",
        text=" Paris.\n" + pl.col("query").str.head(12),
        n_tokens=pl.lit(3),
        logprob=pl.lit(None, pl.Float32),
        finish_reason=pl.lit("stop"),
    )


def resume(run: Run) -> int:
    """A driver's listing before it starts an engine; returns the number of answers left."""
    return sum(remaining_prompts.count_left(list_work(build_plan(run))))


def status(run: Run) -> int:
    """Every line of `factsweep status`; returns their number."""
    return len(list(listing.status(run)))


def anti_join(run: Run) -> int:
    """The peer: all ids against all ids; returns the number of answers left."""
    (branch,) = build_plan(run).branches
    store_path = branch.answers.store.where
    prompts = pl.scan_parquet(f"{store_path(branch.prompts.folder)}/prompts/*.parquet")
    folder = store_path(branch.answers.folder)
    answers = [
        pl.scan_parquet(f"{folder}/{part}/*.parquet").select("prompt_id")
        for part in ("generations", "chunks/generations/*")
    ]
    prompt_ids = prompts.filter(pl.col("same_as").is_null()).select("prompt_id")
    missing = prompt_ids.join(pl.concat(answers), on="prompt_id", how="anti")
    return int(missing.select(pl.len()).collect().item())


if __name__ == "__main__":
    main()
