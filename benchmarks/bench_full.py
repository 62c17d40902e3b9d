"""A run of all of MyriadLAMA's prompts, end to end: the pipeline and the loop of a script.

Makes a set of MyriadLAMA's size (bench_expand.py), then asks a fake engine all of it, greedily:

    run    `factsweep run`, from the rows to the tables: all is tokenised, all answers are published
    loop   the peer: the facts with str.replace, the same tokenizer and fake engine in batches, one
           JSON line per answer, and the share of right ones

The loop has less to do: it finds no duplicates, can't resume, normalises nothing and has one
number. Also: the peak memory of the processes of each name at one time (a page
that several share is divided among them), and the stored bytes. With --delay it is stored on an S3
server on this machine, each request to which takes so many seconds longer; a fake engine answers
as many real ones together, and so as many answers more are kept at a time.

    python benchmarks/bench_full.py [--scale 0.05] [--setting 4-template] [--delay 0.03]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import psutil
import pytest
from _fresh_process import in_fresh_process
from bench_expand import loop_over_facts, make_rows

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Request, Sampling
from factsweep.pipeline.config import settings
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.storage.store import Store

sys.path.append(str(Path(__file__).parents[1]))
from tests.s3_server import Line, bucket, serving

TARGET_S, TARGET_GIB = 600.0, 4.0
ALL = "all processes at one time"
LOOK_EVERY_S = 0.5
FAR_CHUNK = 8192  # answers: 16 engines that keep 512 each
BATCH = 4096  # prompts that the loop tokenises at once


def main() -> None:
    """Make the set, run, run the loop, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pairs (1: all)")
    parser.add_argument("--setting", default="zero-shot", choices=("zero-shot", "4-template"))
    parser.add_argument("--delay", type=float, help="seconds of a request to a store on S3")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-full-") as name, store(name, args.delay) as url:
        folder = Path(name)
        in_fresh_process(make_rows, folder / "rows", args.scale)
        run_overrides = overrides(folder, url, args.setting)
        if args.delay is not None:
            run_overrides.append(f"cluster.rows_per_chunk={FAR_CHUNK}")
        began = time.time()
        seconds, memory = through_run(run_overrides, folder)
        sizes = Store(url).sizes("").values()
        parts = seconds_of_parts(began, Store(url), Store(f"{folder}/results/full"))
        prompts, peer_s = in_fresh_process(through_loop, run_overrides, folder)
    print(f"run   {prompts:,} prompts in {seconds:.0f} s, {prompts / seconds:,.0f} prompts/s")
    for process, gib in sorted(memory.items(), key=lambda item: -item[1]):
        print(f"      {gib:5.2f} GiB at most  {process}")
    print("      first shard answered after {:.1f} s, the last {:.1f} s later;".format(*parts[:2]))
    print("      after that: numbers {:.1f} s, tables and page {:.1f} s".format(*parts[2:]))
    print(f"      {len(sizes):,} files, {sum(sizes) / 1e6:,.1f} MB")
    print(f"loop  {prompts:,} prompts in {peer_s:.0f} s: {peer_s / seconds:.2f} × the run's time")
    if args.scale == 1:
        holds = seconds < TARGET_S and memory[ALL] < TARGET_GIB
        target = f"{TARGET_S:.0f} s and {TARGET_GIB:.0f} GiB"
        print(f"target: {target}: {'holds' if holds else 'MISSED'}")


@contextmanager
def store(folder: str, delay_s: float | None) -> Iterator[str]:
    """Where the artifacts go: a folder, or a bucket behind a line that takes so long."""
    if delay_s is None:
        yield f"{folder}/artifacts"
        return
    with serving(Path(folder) / "s3.log") as server, pytest.MonkeyPatch.context() as patch:
        yield f"{bucket(Line(server.url, delay_s).url, patch)}/full"


def overrides(folder: Path, url: str, setting: str) -> list[str]:
    """The overrides of the run."""
    return [
        *("benchmark=myriadlama", f"benchmark.path={folder}/rows", f"prompt={setting}"),
        *("decoding.engine=fake", "decoding=greedy", "model=smollm2-135m", "cluster.device=cpu"),
        *(f"artifacts={url}", f"results={folder}/results", "run_name=full"),
    ]


def through_run(run_overrides: list[str], folder: Path) -> tuple[float, dict[str, float]]:
    """The seconds of a run, and the most GiB of the processes of each name."""
    command = [str(Path(sys.executable).with_name("factsweep")), "run", *run_overrides]
    peaks: dict[str, float] = defaultdict(float)
    began = time.monotonic()
    with (folder / "log").open("w") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        while run.poll() is None:
            memory_now = held(psutil.Process(run.pid))
            for name, gib in (*memory_now.items(), (ALL, sum(memory_now.values()))):
                peaks[name] = max(peaks[name], gib)
            time.sleep(LOOK_EVERY_S)
    assert run.returncode == 0, (folder / "log").read_text()
    return time.monotonic() - began, {name: gib for name, gib in peaks.items() if gib > 0.1}


def seconds_of_parts(
    began: float, store: Store, results: Store
) -> tuple[float, float, float, float]:
    """The seconds to the first shard of answers, to the last, to the metrics, to the results.

    The last two are counted from the last shard.
    """
    answers = store.files("generations")
    shards = [file.written for name, file in answers.items() if "/generations/" in name]
    (numbers,) = (f.written for n, f in store.files("metrics").items() if "manifest" in n)
    first, last, ended = min(shards), max(shards), results.files("")["run.json"].written
    return first - began, last - first, numbers - last, ended - last


def held(driver: psutil.Process) -> dict[str, float]:
    """The GiB that the processes of each name hold now."""
    gib_by_name: dict[str, float] = defaultdict(float)
    for process in (driver, *driver.children(recursive=True)):
        try:
            words = process.cmdline() or [process.name()]
            name = words[0].split(".")[0] if words[0].startswith("ray::") else Path(words[0]).name
            gib_by_name["driver" if process == driver else name] += (
                process.memory_full_info().pss / 2**30
            )
        except psutil.NoSuchProcess:
            continue
    return gib_by_name


def through_loop(run_overrides: list[str], folder: Path) -> tuple[int, float]:
    """Ask the same prompts as a script would; how many they are, and the seconds.

    The rows of the facts are read from the run's artifact, which the loop need not check.
    """
    plan = build_plan(settings.load(run_overrides))
    began = time.monotonic()
    texts, answers = folder / "prompts.jsonl", folder / "answers.jsonl"
    n = loop_over_facts(texts, plan.branches[0].facts, plan.branches[0].setting)
    with texts.open() as lines, answers.open("w") as file:
        rows = map(json.loads, lines)
        while batch := list(islice(rows, BATCH)):
            file.writelines(f"{json.dumps(answer)}\n" for answer in answered(plan, batch))
    right = plan.branches[0].facts.read("pairs", "all").select("pair_id", "objects").iter_rows()
    labels = {
        pair: {x for object_ in objects for x in object_["labels"]} for pair, objects in right
    }
    with answers.open() as lines:
        is_right = [row["text"] in labels[row["pair_id"]] for row in map(json.loads, lines)]
    assert len(is_right) == n
    return n, time.monotonic() - began


def answered(plan: Plan, rows: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """The answers to some prompts."""
    sampling = Sampling(max_tokens=plan.run.decoding.max_tokens, stop=("\n",))
    ids = tokenizer(plan.weights)([row["prompt"] for row in rows])["input_ids"]
    requests = [
        Request(row["prompt_id"], tokens, sampling) for row, tokens in zip(rows, ids, strict=True)
    ]
    for row, answer in zip(rows, FakeEngine().answers(requests), strict=True):
        yield {"pair_id": row["prompt_id"].rsplit(".", 3)[0], "text": answer.completions[0].text}


if __name__ == "__main__":
    os.environ["FACTSWEEP_FAKE_ENGINE"] = "{}"
    main()
