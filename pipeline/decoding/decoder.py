"""An engine of the pool: a Ray actor that is handed one shard after the other."""

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray

from factsweep.operators.errors import DecodingError, FactsweepError, StoppedError
from factsweep.operators.prompts.tokens import visible
from factsweep.pipeline.cluster.ray_cluster import at_work, is_leaving
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import cause, decode, engine, remaining
from factsweep.pipeline.decoding.engine import Clocked
from factsweep.pipeline.decoding.open_shard import OpenShard
from factsweep.pipeline.decoding.remaining import Work
from factsweep.pipeline.decoding.tally import Begun, TallyPurse
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.secrets import hidden_traceback
from factsweep.pipeline.stages.answer import software
from factsweep.pipeline.stages.step import check_planned
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.object_store import REFUSED

_COLLECT_EVERY = 50_000  # new objects: imports make millions, and no garbage
_GOING_S = 600.0  # that a node may be there after its engines were asked to leave it


@dataclass(eq=False)
class _Turn:
    """A shard that waits for the engine, or that it is at.

    `closed` is there when the engine has done its part: what becomes of the shard where it is
    published, and what is told of it.
    """

    item: Work
    opening: Future[OpenShard] = field(default_factory=Future)
    closed: Future[Future[FactsweepError | None]] = field(default_factory=Future)
    on_duty: ExitStack = field(default_factory=ExitStack)

    def read(self) -> None:
        """Read what is asked and what is answered; what goes wrong is told when it is its turn."""
        try:
            self.rows = remaining.todo(self.item)
            self.opening.set_result(OpenShard(self.item, self.rows))
        except Exception as error:
            self.opening.set_exception(error)

    @property
    def shard(self) -> OpenShard:
        """The open shard."""
        return self.opening.result()

    def may_follow(self, first: "_Turn") -> bool:
        """Whether the engine may be at both: shards of one artifact, of which no engine has died.

        Of a shard that kills engines, those that are asked beside it would be suspected, too.
        """
        if self.item.artifact.folder != first.item.artifact.folder:
            return False
        if not self.opening.done() or self.opening.exception() is not None:
            return False
        innocent = first.shard.killed_nobody and self.shard.killed_nobody
        return innocent and self.item.max_deaths > 1 and self.shard.n_left > 0


class Decoder:
    """An engine with a model in it, that decodes one shard after the other; a Ray actor.

    It is called for some shards at a time: one is published behind the answering of the next, which
    is begun before the last answers of the one before are there. A call returns when its shard is
    published, so that those of an engine that dies go to another.
    The engine is loaded and asked in one thread, and refuses any other (`Clocked`).
    It is loaded before Ray takes the actor for ready: one that came late would hold two shards
    meanwhile, and at the end of a run all others would wait for it.
    """

    def __init__(self, run: Run, weights: Weights, tally: Any, place: str) -> None:
        self._run, self._weights, self._tally = run, weights, tally
        self._place = place  # that of the engine that died here, too
        self._stopping = False
        self._has_answered = False
        self._is_first = False
        self._n_refused = 0  # by a store, told so far
        # What is finished is published before the process ends; so it is where the node goes.
        signal.signal(signal.SIGTERM, self._stop)
        self._watchdog = Watchdog()
        self._turns = deque[_Turn]()
        self._artifacts: dict[str, Artifact] = {}
        self._answering = ThreadPoolExecutor(1, "engine")
        self._publishing = ThreadPoolExecutor(1, "publisher")
        self._hopeless: DecodingError | None = None
        self._telling = threading.Lock()
        self._purse = None if run.max_cost is None else TallyPurse(tally)
        node, log = ray.get_runtime_context().get_node_id(), str(cause.own_log())
        if lost := ray.get(tally.born.remote(place, node, log)):
            self._hopeless = self._died(cause.of_log(Path(lost)), Path(lost))
        self._loading = self._answering.submit(self._load)
        wait([self._loading])  # why it cannot be loaded is told when it is handed its first shard

    def _load(self) -> tuple[Clocked, Any]:
        if self._hopeless is not None:
            raise self._hopeless
        gc.set_threshold(_COLLECT_EVERY)
        with self._watchdog.on_guard(self._run.cluster.start_s):
            loaded = engine.load(self._run, self._weights)
            tokenizer = models.tokenizer(self._weights)
        self._is_first = ray.get(self._tally.started.remote())
        return Clocked(loaded), tokenizer

    def decode(self, item: Work) -> FactsweepError | None:
        """Answer a shard when the engine is free, and wait until it is published.

        Returns an error of ours: Ray would make it a text in an error of its own.
        """
        # What is read of the artifacts of a shard is read once for all shards.
        shared = (item.artifact, item.prompts, item.admitted)
        known = [self._artifacts.setdefault(each.folder, each) for each in shared]
        turn = _Turn(replace(item, artifact=known[0], prompts=known[1], admitted=known[2]))
        try:
            turn.read()  # while the engine is at the shard before this one
            self._turns.append(turn)
            self._answering.submit(self._take_turn)
            return turn.closed.result().result()
        except Exception as error:
            return self._told(error)

    def _take_turn(self) -> None:
        """Answer the shard whose turn it is, unless it has followed the one before it."""
        if not self._turns:
            return
        at = [self._turns.popleft()]
        try:
            told = self._hopeless or self._answered(at)
        except BaseException as error:
            for turn in at:
                turn.closed.set_exception(error)
            raise
        # An error may end the run: it comes when what was handed on before is published.
        for turn in at:
            turn.closed.set_result(self._publishing.submit(lambda: told))

    def _answered(self, at: list[_Turn]) -> FactsweepError | None:
        """Answer the first shard and those that follow it, which join it, and hand them on.

        Returns what is told of those that are left.
        """
        try:
            for shard in self._closed(at):
                turn = next(each for each in at if each.shard is shard)
                turn.closed.set_result(self._publishing.submit(self._publish, turn))
                at.remove(turn)
                self._tell_what_is_asked(at)
            return None
        except Exception as error:
            for turn in at:
                turn.on_duty.close()
            return self._told(error)  # here: the next shard is not begun meanwhile

    def _closed(self, at: list[_Turn]) -> Iterator[OpenShard]:
        """Each shard when the engine has done its part: the first, and those that follow it."""
        (first,), run = at, self._run
        here = software(run.method.ask.ability, run.decoding)
        check_planned({"software": here}, first.item.artifact)
        if self._is_asked():
            raise StoppedError
        loaded, tokenizer = self._loading.result()
        self._begin(first, loaded)
        self._show_first(first, tokenizer)
        self._prove(first.item, loaded, tokenizer)
        self._tell_what_is_asked(at)

        def follow() -> OpenShard | None:
            if self._is_asked() or not (self._turns and self._turns[0].may_follow(first)):
                return None
            at.append(turn := self._turns.popleft())
            self._begin(turn, loaded)
            if len(at) == 1:  # the one before is answered
                self._tell_what_is_asked(at)
            return turn.shard

        return decode.answer(first.shard, loaded, tokenizer, follow, self._purse)

    def _tell_what_is_asked(self, at: Sequence[_Turn]) -> None:
        """Tell which shard the engine would die of: the first whose answers it owes."""
        if at:
            ray.get(self._tally.asked.remote(self._place, at[0].item.name))

    def _begin(self, turn: _Turn, loaded: Clocked) -> None:
        """Tell that a shard is begun, and hear what is answered again of it."""
        turn.on_duty.enter_context(self._watchdog.on_guard(self._run.cluster.stall_s))
        turn.on_duty.enter_context(at_work())
        item, shard = turn.item, turn.shard
        work = (self._place, item.name, item.n_answers(shard.n_left))
        begun: Begun = ray.get(self._tally.begin.remote(*work))
        if begun.stop or self._is_asked():
            raise StoppedError
        shard.begin(loaded, partial(self._report, item), begun.again)
        self._note(item, "begins")

    def _publish(self, turn: _Turn) -> None:
        """Publish what is answered; one shard at a time."""
        with turn.on_duty:
            decode.publish(turn.shard)
            self._tally.end.remote(self._place, turn.item.name)
            self._note(turn.item, "has published")

    def _told(self, error: Exception) -> FactsweepError | None:
        """What is told of an error; one that is none of ours ends this process."""
        if isinstance(error, StoppedError):
            return self._stopped(error)
        if isinstance(error, DecodingError):
            last: str | None = ray.get(self._tally.last_death.remote())
            return DecodingError(f"{error} The last one died of {last}.") if last else error
        if isinstance(error, FactsweepError):
            return error
        sys.stderr.write(hidden_traceback())
        sys.stderr.flush()
        log = cause.own_log()
        with self._telling:
            # The other shard says so, too: were this process ended for it, what the first one says
            # would be lost on its way to Ray.
            hopeless = self._hopeless or self._died(cause.of_error(error, log), log)
            self._hopeless = hopeless
        if hopeless is None:
            # A dead engine must not go on taking shards: its process ends, and Ray starts
            # another, while whoever is free does the shard.
            self._end(1)
        return hopeless

    def _stopped(self, error: StoppedError) -> StoppedError | None:
        """What comes of a shard that was not decoded to its end, as somebody wished."""
        if str(error) == decode.BROKE:
            self._tally.stop.remote()  # the others have no more than this one
            return error
        # Where the user stops the run, the other engines need the time to publish theirs.
        if self._is_asked() or ray.get(self._tally.is_leaving.remote(self._place)):
            self._leave()
        return None

    def _prove(self, item: Work, loaded: Clocked, tokenizer: Any) -> None:
        """Where the engine before this one answered nothing, ask one other prompt by itself.

        So a prompt that kills is told from an engine that cannot answer.
        """
        if self._has_answered:
            return
        suspects = ray.get(self._tally.suspects.remote(self._place))
        if not suspects:
            return
        row = remaining.other_prompt(item, suspects)
        if row.is_empty():
            return
        ray.get(self._tally.asked.remote(self._place, row["prompt_id"][0]))
        for _ in item.question.task.answered([row], loaded, tokenizer):
            ray.get(self._tally.answered.remote(self._place))
        self._has_answered = True

    def _died(self, why: str, log: Path) -> DecodingError | None:
        """Tell that an engine died here; returns an error where no other is to be tried."""
        hopeless = ray.get(self._tally.died.remote(self._place, why))
        if not hopeless:
            return None
        return cause.with_log(DecodingError(f"{self._run.model.name} {hopeless}"), log)

    def _show_first(self, turn: _Turn, tokenizer: Any) -> None:
        """Show the first prompt as the model reads it, if no engine was ready before this one."""
        if not self._is_first:
            return
        self._is_first = False
        task = turn.item.question.task
        for text in turn.rows["text"].head(1):
            for warning in task.warnings(tokenizer, text):
                self._tally.say.remote(f"warning: {warning}")
            (ids,) = task.token_ids(tokenizer, [text])
            self._tally.say.remote(f"first prompt, {len(ids)} tokens: {visible(tokenizer, ids)!r}")

    def _report(self, item: Work, counts: dict[str, float]) -> bool:
        self._watchdog.beat()
        engine, _ = self._loading.result()
        refused, self._n_refused = self._n_refused, REFUSED.times
        done = {**counts, **engine.faults(), "store_refused": self._n_refused - refused}
        asked = bool(ray.get(self._tally.add.remote(done, self._place, item.name)))
        return asked or self._is_asked()

    def _is_asked(self) -> bool:
        """Whether this process or this node is to end, and no other."""
        return self._stopping or is_leaving()

    def _leave(self) -> None:
        """End, so that Ray hands the shard to another engine; what is finished is published."""
        self._publishing.shutdown()
        ray.get(self._tally.ended.remote(self._place))
        if is_leaving():
            # Ray does not know yet, and would start another engine here. The node ends this one.
            time.sleep(_GOING_S)
        self._end(0)

    def _end(self, code: int) -> None:
        """End this process when what was handed on to be published is."""
        self._publishing.shutdown()
        os._exit(code)

    def _note(self, item: Work, what: str) -> None:
        """Write into the log of this engine what it is at."""
        sys.stderr.write(f"{logs.line(f'{self._place} {what} shard {item.name}')}\n")
        sys.stderr.flush()

    def _stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True


class Watchdog:
    """Ends this process when an engine at work gives no answer for too long.

    An engine that hangs can be ended in no other way; whoever is free then does its shard. The
    timer is a thread of the interpreter's own, so it fires even where an engine hangs inside C
    code. One watches over however many threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: list[float] = []  # of the blocks that it guards

    @contextmanager
    def on_guard(self, limit_s: float) -> Iterator[None]:
        """End the process with code 1 if, during the block, `limit_s` pass without a beat.

        A beat is one of all blocks. Where each thread stands is then written to the standard error.
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
        """Say that there was progress."""
        with self._lock:
            if self._limits:
                faulthandler.dump_traceback_later(max(self._limits), exit=True)
