"""An engine of the pool: a Ray actor that decodes one shard after the other."""

import faulthandler
import gc
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray

from factsweep.operators.errors import DecodingError, FactsweepError, StoppedError
from factsweep.operators.prompts.tokens import visible
from factsweep.pipeline.cluster.ray_cluster import delay_leaving, is_leaving
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import decode, engine, remaining_prompts, root_cause
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.decoding.open_shard import OpenShard
from factsweep.pipeline.decoding.progress_counter import AttemptStart, CostLimit, count_refused
from factsweep.pipeline.decoding.remaining_prompts import Work
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.secrets import hidden_traceback
from factsweep.pipeline.stages.question import software
from factsweep.pipeline.stages.step import check_planned
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.object_store import REFUSED

_COLLECT_EVERY = 50_000  # new objects: imports make millions, and no garbage
_DRAIN_S = 600.0  # a node may be there for so long after its engines were asked to leave it


@dataclass(eq=False)
class _Turn:
    """A shard that waits for the engine, or that the engine is at.

    `closed` is set when the engine has done its part: to the outcome of publishing the shard.
    """

    item: Work
    opening: Future[OpenShard] = field(default_factory=Future)
    closed: Future[Future[FactsweepError | None]] = field(default_factory=Future)
    on_duty: ExitStack = field(default_factory=ExitStack)

    def read(self) -> None:
        """Open the shard; an error is raised when it is the shard's turn."""
        try:
            self.rows = remaining_prompts.read_prompts(self.item)
            self.opening.set_result(OpenShard(self.item, self.rows))
        except Exception as error:
            self.opening.set_exception(error)

    @property
    def shard(self) -> OpenShard:
        return self.opening.result()

    def may_follow(self, first: "_Turn") -> bool:
        """Whether the engine may be at both: shards of one artifact that have killed no engine.

        Shards that run together with one that kills engines would be suspected, too.
        """
        if self.item.artifact.folder != first.item.artifact.folder:
            return False
        if not self.opening.done() or self.opening.exception() is not None:
            return False
        innocent = first.shard.killed_nobody and self.shard.killed_nobody
        return innocent and self.item.max_deaths > 1 and self.shard.n_left > 0


class _RemotePurse(CostLimit):
    """The purse of the tally, which all engines pay from."""

    def __init__(self, tally: Any) -> None:
        super().__init__()
        self._tally = tally

    def reserve(self, cost: float) -> bool:
        return bool(ray.get(self._tally.reserve.remote(cost)))

    def settle(self, reserved: float, cost: float) -> None:
        self._tally.settle.remote(reserved, cost)


class Decoder:
    """A loaded engine that decodes one shard after the other; a Ray actor.

    Several calls overlap: a shard is published while the next one is answered. A call returns when
    its shard is published, so that Ray hands the shards of a dead engine to another.
    The actor is ready only when the model is loaded: one that still loads would hold shards that
    others wait for. The engine is loaded and asked in one thread (`TimedEngine`).
    """

    def __init__(self, run: Run, weights: Weights, tally: Any, place: str) -> None:
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)  # finished answers are published before the end
        self._watchdog = Watchdog()
        self._answering = ThreadPoolExecutor(1, "engine")
        self._publishing = ThreadPoolExecutor(1, "publisher")
        self._telling = threading.Lock()
        self._begin_run(run, weights, tally, place)
        self._loading = self._answering.submit(self._load)
        wait([self._loading])  # an error is raised by the first call of `decode`

    def _begin_run(self, run: Run, weights: Weights, tally: Any, place: str) -> None:
        self._run, self._weights, self._tally = run, weights, tally
        self._place = place  # the same for an engine and its successors
        self._has_answered = False
        self._is_first = False
        REFUSED.report = partial(count_refused, tally)
        self._turns = deque[_Turn]()
        self._artifacts: dict[str, Artifact] = {}
        self._hopeless: DecodingError | None = None
        self._purse = None if run.max_cost is None else _RemotePurse(tally)
        node, log = ray.get_runtime_context().get_node_id(), str(root_cause.find_own_log())
        if lost := ray.get(tally.register_engine.remote(place, node, log)):
            self._hopeless = self._report_death(
                root_cause.find_cause_in_log(Path(lost)), Path(lost)
            )

    def _load(self) -> tuple[TimedEngine, Any]:
        if self._hopeless is not None:
            raise self._hopeless
        gc.set_threshold(_COLLECT_EVERY)
        started = time.monotonic()
        with self._watchdog.on_guard(self._run.cluster.start_s):
            self._engine = engine.load(self._run, self._weights)
            gc.freeze()  # 750,000 objects, which each full collection and the exit would visit
            self._start_s = time.monotonic() - started
        return self._prepare()

    def _prepare(self) -> tuple[TimedEngine, Any]:
        tokenizer = models.tokenizer(self._weights)
        self._is_first = ray.get(self._tally.note_ready.remote())
        return TimedEngine(self._engine), tokenizer

    def renew(self, run: Run, weights: Weights, tally: Any, place: str) -> str | None:
        """Serve another run, with its weights loaded in place.

        Returns why this engine cannot, and null if it can; if not, it is to be ended.
        """
        if self._must_end():
            return "it is about to end"
        started = time.monotonic()
        try:
            difference = self._answering.submit(self._reload, run, weights).result()
        except Exception:
            sys.stderr.write(hidden_traceback())
            return f"it failed; see {root_cause.find_own_log()}"
        if difference is not None:
            return difference
        reload_s = time.monotonic() - started
        self._begin_run(run, weights, tally, place)
        tally.add_note.remote(
            f"{place} took the weights of {run.model.name} in place in {reload_s:.1f} s; its start "
            f"had taken {self._start_s:.1f} s"
        )
        self._loading = self._answering.submit(self._prepare)
        wait([self._loading])
        return None

    def _reload(self, run: Run, weights: Weights) -> str | None:
        with self._watchdog.on_guard(run.cluster.start_s):
            return engine.reload(self._engine, self._weights, run, weights)

    def decode(self, item: Work) -> FactsweepError | None:
        """Answer a shard when the engine is free, and wait until it is published.

        Returns a FactsweepError instead of raising it: Ray would turn it into an error of its own.
        """
        # Artifacts cache their tables, so shards share them.
        artifacts = (item.artifact, item.prompts, item.admitted)
        output, prompts, admitted = (self._artifacts.setdefault(a.folder, a) for a in artifacts)
        turn = _Turn(replace(item, artifact=output, prompts=prompts, admitted=admitted))
        try:
            turn.read()  # while the engine is at the shard before this one
            self._turns.append(turn)
            self._answering.submit(self._take_turn)
            return turn.closed.result().result()
        except Exception as error:
            return self._handle(error)

    def _take_turn(self) -> None:
        """Answer the shard whose turn it is, unless it has joined the one before it."""
        if not self._turns:
            return
        running = [self._turns.popleft()]
        try:
            error = self._hopeless or self._answer(running)
        except BaseException as fatal:
            for turn in running:
                turn.closed.set_exception(fatal)
            raise
        # An error may end the run: it is returned after the shards before are published.
        for turn in running:
            turn.closed.set_result(self._publishing.submit(lambda: error))

    def _answer(self, running: list[_Turn]) -> FactsweepError | None:
        """Answer a shard and its followers, and hand them to the publisher.

        Returns the error of the shards that are left in `running`.
        """
        try:
            for shard in self._closed_shards(running):
                turn = next(turn for turn in running if turn.shard is shard)
                turn.closed.set_result(self._publishing.submit(self._publish, turn))
                running.remove(turn)
                self._report_task(running)
            return None
        except Exception as error:
            for turn in running:
                turn.on_duty.close()
            return self._handle(error)  # in this thread: the next shard waits

    def _closed_shards(self, running: list[_Turn]) -> Iterator[OpenShard]:
        """Answer the first shard and its followers; yields each when it is answered."""
        (first,), run = running, self._run
        versions = software(run.method.ask.ability, run.decoding)
        check_planned({"software": versions}, first.item.artifact)
        if self._must_end():
            raise StoppedError
        loaded, tokenizer = self._loading.result()
        self._begin(first, loaded)
        self._show_first(first, tokenizer)
        self._prove(first.item, loaded, tokenizer)
        self._report_task(running)

        def follow() -> OpenShard | None:
            # Ray may have begun the calls of waiting shards in another order.
            turn = next((turn for turn in tuple(self._turns) if turn.may_follow(first)), None)
            if turn is None or self._must_end():
                return None
            self._turns.remove(turn)
            running.append(turn)
            self._begin(turn, loaded)
            self._report_task(running)  # the one before may be answered
            return turn.shard

        return decode.answer(first.shard, loaded, tokenizer, follow, self._purse)

    def _report_task(self, running: Sequence[_Turn]) -> None:
        """Report the shard to blame if the engine dies now: the first that owes answers."""
        if running:
            ray.get(self._tally.set_task.remote(self._place, running[0].item.name))

    def _begin(self, turn: _Turn, loaded: TimedEngine) -> None:
        turn.on_duty.enter_context(self._watchdog.on_guard(self._run.cluster.stall_s))
        turn.on_duty.enter_context(delay_leaving())
        item, shard = turn.item, turn.shard
        n_left = item.n_answers(shard.n_left)
        start: AttemptStart = ray.get(self._tally.begin.remote(self._place, item.name, n_left))
        if start.stop or self._must_end():
            raise StoppedError
        shard.begin(loaded, partial(self._report, item), start.n_lost)
        self._log(item, "begins")

    def _publish(self, turn: _Turn) -> None:
        with turn.on_duty:
            decode.publish(turn.shard)
            self._tally.end.remote(self._place, turn.item.name)
            self._log(turn.item, "has published")

    def _handle(self, error: Exception) -> FactsweepError | None:
        """Return the error of a shard for the driver; an unexpected one ends this process."""
        if isinstance(error, StoppedError):
            if str(error) == decode.BROKE:
                self._tally.stop.remote()  # all engines have the same purse
                return error
            # Where the user stops the run, other engines need the time to publish their shards.
            if self._must_end() or ray.get(self._tally.is_leaving.remote(self._place)):
                self._publishing.shutdown()
                ray.get(self._tally.note_end.remote(self._place))
                if is_leaving():  # Ray would start another engine on this node, which ends anyway
                    time.sleep(_DRAIN_S)
                self._end(0)
            return None
        if isinstance(error, DecodingError):
            last: str | None = ray.get(self._tally.last_death.remote())
            return DecodingError(f"{error} The last one died of {last}.") if last else error
        if isinstance(error, FactsweepError):
            return error
        with suppress(OSError):
            sys.stderr.write(hidden_traceback())
            sys.stderr.flush()
        log = root_cause.find_own_log()
        with self._telling:
            # The call for the other shard returns the same error: if it ended this process, the
            # error of the first call might be lost on its way to Ray.
            self._hopeless = self._hopeless or self._report_death(
                root_cause.find_cause(error, log), log
            )
        if self._hopeless is None:
            self._end(1)  # the pool starts another engine, and hands the shard to a free one
        return self._hopeless

    def _prove(self, item: Work, loaded: TimedEngine, tokenizer: Any) -> None:
        """Ask one other prompt alone if the engine before this one answered nothing.

        This separates a prompt that kills engines from an engine that cannot answer.
        """
        if self._has_answered:
            return
        suspects = ray.get(self._tally.suspects.remote(self._place))
        if not suspects:
            return
        row = remaining_prompts.other_prompt(item, suspects)
        if row.is_empty():
            return
        ray.get(self._tally.set_task.remote(self._place, row["prompt_id"][0]))
        for _ in item.question.task.answer_groups([row], loaded, tokenizer):
            ray.get(self._tally.clear_deaths.remote(self._place))
        self._has_answered = True

    def _report_death(self, reason: str, log: Path) -> DecodingError | None:
        """Report the death of an engine; returns an error if no other engine is to be started."""
        hopeless = ray.get(self._tally.note_death.remote(self._place, reason))
        if not hopeless:
            return None
        return root_cause.add_log_lines(DecodingError(f"{self._run.model.name} {hopeless}"), log)

    def _show_first(self, turn: _Turn, tokenizer: Any) -> None:
        """Show the first prompt as the model reads it, if this is the first engine of the run."""
        if not self._is_first:
            return
        self._is_first = False
        task = turn.item.question.task
        for text in turn.rows["text"].head(1):
            for warning in task.warnings(tokenizer, text):
                self._tally.add_note.remote(f"warning: {warning}")
            (ids,) = task.token_ids(tokenizer, [text])
            self._tally.add_note.remote(
                f"first prompt, {len(ids)} tokens: {visible(tokenizer, ids)!r}"
            )

    def _report(self, item: Work, counts: dict[str, float]) -> bool:
        self._watchdog.beat()
        engine, _ = self._loading.result()
        counts = {**counts, **engine.faults()}
        stop = bool(ray.get(self._tally.add.remote(counts, self._place, item.name)))
        return stop or self._must_end()

    def _must_end(self) -> bool:
        """Whether this process or this node is to end."""
        return self._stopping or is_leaving()

    def _end(self, code: int) -> None:
        self._publishing.shutdown()
        os._exit(code)

    def _log(self, item: Work, action: str) -> None:
        with suppress(OSError):  # the disk of Ray's logs is full
            sys.stderr.write(f"{logs.line(f'{self._place} {action} shard {item.name}')}\n")
            sys.stderr.flush()

    def _stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True


class Watchdog:
    """Ends this process when a busy engine gives no answer for too long.

    The timer is a thread of the interpreter's own, so it fires even if an engine hangs in C code.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: list[float] = []  # of the guarded blocks

    @contextmanager
    def on_guard(self, limit_s: float) -> Iterator[None]:
        """End the process with code 1 if `limit_s` pass in the block without a beat of any block.

        The stacks of all threads are then written to the standard error.
        """
        with self._lock:
            self._limits.append(limit_s)
        self.beat()
        try:
            yield
        finally:
            with self._lock:
                self._limits.remove(limit_s)
                faulthandler.cancel_dump_traceback_later()
            self.beat()

    def beat(self) -> None:
        """Report progress."""
        with self._lock:
            if self._limits:
                faulthandler.dump_traceback_later(max(self._limits), exit=True)
