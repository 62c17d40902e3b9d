"""How much of its time an engine waits for us: shards published behind the next one's answering.

Makes up a relation whose prompts fill shards of 16,384, and answers some of these with a fake
engine that takes 512 requests at a time, as vLLM does, and answers 900 a second in the background:
it cannot catch up on late requests. The answers are published for real, into a
folder whose calls take --delay seconds longer, like a bucket's, many at once. The clock
begins when the engine is loaded: by then the first shard is read.

    behind   as the pool does: a shard is published behind the answering of the next
    between  the peer: a shard is read, answered and published, then the next one

    python benchmarks/bench_idle.py [--shards 3] [--prompts 16384] [--delay 0]
"""

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any

import polars as pl
from _fresh_process import in_fresh_process

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request
from factsweep.operators.schemas import empty
from factsweep.pipeline.config import settings
from factsweep.pipeline.decoding import decode
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.decoding.open_shard import OpenShard
from factsweep.pipeline.decoding.remaining_prompts import (
    Work,
    begin,
    count_left,
    list_work,
    read_prompts,
)
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.stages.plan import build_plan
from factsweep.pipeline.storage.store import Store

ANSWERS_PER_S, AT_ONCE, PAIRS = 900.0, 512, 1024
CALLS = ("put", "put_new", "get", "exists", "names", "drop")


class Background(FakeEngine):
    """Answers at a fixed rate, independent of the calling process."""

    def __init__(self) -> None:
        super().__init__()
        self.began = self._free_at = time.monotonic()
        self.idle_s = 0.0

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer for each request, when it is ready."""
        waiting, running = iter(requests), deque[tuple[float, Request]]()
        while True:
            while len(running) < AT_ONCE and (request := next(waiting, None)) is not None:
                running.append((self._ready_at(), request))
            if not running:
                return
            ready_at, request = running.popleft()
            time.sleep(max(0.0, ready_at - time.monotonic()))
            yield from super().answers([request])

    def _ready_at(self) -> float:
        clock = time.monotonic()
        self.idle_s += max(0.0, clock - self._free_at)
        self._free_at = max(clock, self._free_at) + 1 / ANSWERS_PER_S
        return self._free_at


def main() -> None:
    """Answer the same shards both ways, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=3, choices=range(1, 7))
    parser.add_argument("--prompts", type=int, default=16_384, help="of a shard")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds of a call of the store")
    args = parser.parse_args()
    shares = []
    for way in (behind, between):
        idle, noted, seconds = in_fresh_process(
            measured, way, args.shards, args.prompts, args.delay
        )
        shares.append(idle / seconds)
        print(
            f"{way.__name__:8} {seconds:6.1f} s, idle {idle / seconds:.2%}; "
            f"as the shards' footers have it {noted / seconds:.2%}"
        )
    print(f"between is idle {shares[1] / shares[0]:.1f} × as long as behind")


def measured(
    way: "Callable[[list[Work], Callable[[], TimedEngine], Any], None]",
    n_shards: int,
    n_prompts: int,
    delay: float,
) -> tuple[float, float, float]:
    """The seconds in which the engine had nothing to do, as it counts them and as is noted; all."""
    with tempfile.TemporaryDirectory(prefix="bench-idle-") as folder:
        items, reader = prepared(Path(folder), n_shards, n_prompts)
        assert sum(count_left(items)) == n_shards * n_prompts
        slow_down(delay)
        engines: list[Background] = []

        def loaded() -> TimedEngine:
            engines.append(Background())
            return TimedEngine(engines[0])

        way(items, cache(loaded), reader)
        seconds = time.monotonic() - engines[0].began
        counts = items[0].artifact.counts("generations").values()
        return engines[0].idle_s, sum(float(count["idle_seconds"]) for count in counts), seconds


def prepared(folder: Path, n_shards: int, n_prompts: int) -> tuple[list[Work], Any]:
    """The shards to answer, and what reads their prompts."""
    pairs = min(PAIRS, n_prompts)
    # The last shards of a relation are smaller (stages/expand.py): of eight there are six.
    templates = [f"[X] number {i} has [Y]." for i in range(8 * n_prompts // pairs)]
    rows = [
        {
            "rel_uri": "P36",
            "template": template,
            "is_manual": True,
            "sub_ent": f"land {i}",
            "sub_uri": f"Q{i}",
            "sub_aliases": [],
            "obj_uris": [f"Q{i}0"],
            "obj_ents": [f"town {i}"],
            "obj_aliases": [[]],
        }
        for template in templates
        for i in range(pairs)
    ]
    pl.DataFrame(rows).write_parquet(folder / "rows.parquet")
    plan = build_plan(
        settings.load(
            [
                "benchmark=myriadlama",
                f"benchmark.path={folder}/rows.parquet",
                f"artifacts={folder}/artifacts",
                f"cluster.rows_per_shard={n_prompts}",
                *("prompt=zero-shot", "decoding=greedy", "decoding.engine=fake"),
                *("decoding.canary_prompts=0", "model=smollm2-135m"),
            ]
        )
    )
    (branch,) = plan.branches
    branch.step(branch.facts).run()
    branch.step(branch.prompts).run()
    for shard in branch.prompts.shards("prompts"):
        branch.admitted.write("errors", shard, empty("errors"))
    branch.admitted.finish(["errors"])
    begin(branch, branch.answers)
    return list_work(plan)[:n_shards], tokenizer(plan.weights)


def slow_down(delay: float) -> None:
    """Let each call of the store take so many seconds longer, and many go on at once."""
    Store.each = _at_once  # type: ignore[method-assign, assignment]
    for name in CALLS:
        setattr(Store, name, _slower(getattr(Store, name), delay))


def _at_once(_: Store, ask: Callable[[Any], Any], items: Collection[Any]) -> list[Any]:
    with ThreadPoolExecutor(max(1, len(items))) as pool:
        return list(pool.map(ask, items))


def _slower(call: Callable[..., Any], delay: float) -> Callable[..., Any]:
    def slower(*arguments: Any) -> Any:
        time.sleep(delay)
        return call(*arguments)

    return slower


def behind(items: list[Work], loaded: Callable[[], TimedEngine], reader: Any) -> None:
    """Two shards at a time: one is answered, one follows or is published (decoding/decoder.py)."""
    opened, waiting = Queue[Future[OpenShard]](), iter(items)
    reading, publishing = ThreadPoolExecutor(2), ThreadPoolExecutor(1)
    published: list[Future[None]] = []

    def open_next() -> None:
        if (item := next(waiting, None)) is not None:
            opened.put(reading.submit(read, item))

    def begun(one: "Future[OpenShard]") -> OpenShard:
        one.result().begin(loaded(), _goes_on)
        return one.result()

    def follow() -> OpenShard | None:
        return None if opened.empty() or not opened.queue[0].done() else begun(opened.get())

    def answer() -> None:
        n_answered = 0
        while n_answered < len(items):
            for shard in decode.answer(begun(opened.get()), loaded(), reader, follow):
                n_answered += 1
                published.append(publishing.submit(decode.publish, shard))
                published[-1].add_done_callback(lambda _: open_next())

    open_next()
    open_next()
    answer()
    for each in published:
        each.result()


def read(item: Work) -> OpenShard:
    """Open a shard."""
    return OpenShard(item, read_prompts(item))


def between(items: list[Work], loaded: Callable[[], TimedEngine], reader: Any) -> None:
    """One shard after the other."""
    for shard in map(read, items):
        shard.begin(loaded(), _goes_on)
        for answer_row in decode.answer(shard, loaded(), reader):
            decode.publish(answer_row)


def _goes_on(_: dict[str, float]) -> bool:
    return False


if __name__ == "__main__":
    main()
