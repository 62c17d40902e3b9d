"""The pool of engines: Ray Data actors that are fed with shard descriptors, not with rows.

An actor reads its shard, decodes it and publishes it: no answer lives in Ray's object store, and
losing a node loses only what was in flight.
"""

import gc
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import polars as pl
import ray

from factsweep.operators.errors import DecodingError, FactsweepError, StoppedError
from factsweep.operators.prompts.tokens import visible
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.execution import engine
from factsweep.pipeline.execution.cluster import placement
from factsweep.pipeline.execution.faults import cause, leaving
from factsweep.pipeline.execution.faults.watchdog import Watchdog
from factsweep.pipeline.execution.hardware import gpus_per_engine, most_engines
from factsweep.pipeline.execution.plan import Plan
from factsweep.pipeline.execution.queue import Queue, Shard, n_answers, shard_name
from factsweep.pipeline.execution.step import check_planned
from factsweep.pipeline.execution.tally import Begun, TallyPurse
from factsweep.pipeline.execution.work import finish_all, paid
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.secrets import hidden_traceback
from factsweep.pipeline.stages.asking import decode, remaining
from factsweep.pipeline.stages.asking.answer import software
from factsweep.pipeline.stages.asking.idle import Clocked
from factsweep.pipeline.stages.asking.work import Work
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.stores import s3_client

_AT_ONCE = 2  # shards that an engine has: one that it answers, and one that waits or is published
_COLLECT_EVERY = 50_000  # new objects: imports make millions, and no garbage
_GOING_S = 600.0  # that a node may be there after its engines were asked to leave it


def decode_all(
    plan: Plan, tally: Any, leases: Mapping[str, Lease], ready: Sequence[Any], *_after: None
) -> None:
    """Decode every shard that is missing, and publish each manifest when its last one is there.

    A Ray task. `ready` are the futures of each setting's prompts where some are still written;
    where all are there, none.
    """
    queue = Queue(plan, tally, leases, ready)
    if shards := queue.first():
        if plan.run.max_cost is not None:
            ray.get(tally.fund.remote(plan.run.max_cost, paid(plan)))
        for answered in _decode(plan, queue, shards, tally):
            finish_all(plan, leases, answered)
        if ray.get(tally.add.remote({})):
            raise StoppedError("stopped; the next run resumes from what is published.")
    finish_all(plan, leases)


def _decode(plan: Plan, queue: Queue, shards: list[Shard], tally: Any) -> Iterator[str]:
    """Decode all; the folder of each artifact when the last of its shards is done."""
    if plan.run.cluster.address is None:
        from factsweep.pipeline.execution import one_machine  # loads Ray Data

        one_machine.prepare()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Ray counts shards by the calls that may go on at once; its own limits are for one at a time.
    scaling = context.autoscaling_config
    scaling.actor_pool_util_upscaling_threshold = 1.75 / _AT_ONCE
    scaling.actor_pool_util_downscaling_threshold = 0.5 / _AT_ONCE
    run = plan.run
    done = queue.rows(shards).map_batches(
        Decoder,
        fn_constructor_args=(run, plan.loaded, tally),
        batch_size=1,
        compute=engines(run, queue.expected(shards)),
        **placement(run),
    )
    broke, n_done = False, Counter[str]()
    for row in done.iter_rows():
        if isinstance(row["error"], StoppedError):
            broke = True  # the others are to end what is under way
        elif row["error"] is not None:
            raise row["error"]
        n_done[row["artifact"]] += 1
        if n_done[row["artifact"]] == row["of"]:
            yield row["artifact"]
    if broke:
        raise _broke(run, ray.get(tally.spent.remote()))


def engines(run: Run, n_shards: int) -> "ray.data.ActorPoolStrategy":
    """How many engines are asked for: at first, and at least and at most while there is work.

    On a cluster all that the work needs is asked for at once, and not in doubling steps.
    """
    replicas = run.model.replicas
    most = min(most_engines(run), max(replicas.min, n_shards))
    return ray.data.ActorPoolStrategy(
        min_size=replicas.min,
        max_size=most,
        initial_size=replicas.min if run.cluster.address is None else most,
        max_tasks_in_flight_per_actor=_AT_ONCE,
        max_concurrent_calls_per_actor=_AT_ONCE,
        enable_true_multi_threading=True,
    )


def held_gpus(run: Run, context: Any) -> list[str]:
    """The GPUs that the engine of this process holds.

    What vLLM's workers hold in a placement group is not known here, and gets names of our own.
    """
    if not (n := gpus_per_engine(run)):
        return []
    known: list[str] = context.get_accelerator_ids()["GPU"]
    return known or [f"{context.get_actor_id()[:6]}-{number}" for number in range(n)]


def _broke(run: Run, spent: float) -> StoppedError:
    return StoppedError(
        f"stopped at {spent:.4g} spent, before max_cost={run.max_cost:g} is exceeded; what is "
        "answered is kept, and a run with a higher max_cost resumes from it."
    )


class Decoder:
    """An engine with a model in it, that decodes one shard after the other; a Ray Data actor.

    It is called for two shards at a time: one is published behind the answering of the next. A call
    returns when its shard is published, so that Ray hands those of an engine that dies to another.
    The engine is loaded and asked in one thread, and refuses any other (stages/asking/idle.py).
    It is loaded before Ray takes the actor for ready: one that came late would hold two shards
    meanwhile, and at the end of a run all others would wait for it.
    """

    def __init__(self, run: Run, weights: Sequence[Weights], tally: Any) -> None:
        self._run, self._weights, self._tally = run, weights, tally
        context = ray.get_runtime_context()
        self._name = context.get_actor_id()  # that of the engine that died here, too
        self._stopping = False
        self._has_answered = False
        self._is_first = False
        self._n_refused = 0  # by a store, told so far
        # What is finished is published before the process ends; so it is where the node goes.
        signal.signal(signal.SIGTERM, self._stop)
        self._watchdog = Watchdog()
        self._answering = ThreadPoolExecutor(1, "engine")
        self._publishing = ThreadPoolExecutor(1, "publisher")
        self._hopeless: DecodingError | None = None
        self._telling = Lock()
        self._purse = None if run.max_cost is None else TallyPurse(tally)
        born = (self._name, context.get_node_id(), str(cause.own_log()), held_gpus(run, context))
        if lost := ray.get(tally.born.remote(*born)):
            self._hopeless = self._died(cause.of_log(Path(lost)), Path(lost))
        self._loading = self._answering.submit(self._load)
        wait([self._loading])  # why it cannot be loaded is told when it is handed its first shard

    def _load(self) -> tuple[Clocked, Any]:
        if self._hopeless is not None:
            raise self._hopeless
        gc.set_threshold(_COLLECT_EVERY)
        with self._watchdog.on_guard(self._run.cluster.start_s):
            loaded = engine.load(self._run, *self._weights)
            tokenizer = models.tokenizer(self._weights[0])
        self._is_first = ray.get(self._tally.started.remote())
        return Clocked(loaded), tokenizer

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Decode the shards that the batch names.

        An error of ours goes back as a row: Ray would make it a text in an error of its own.
        """
        return {
            "error": [self._decode(item) for item in batch["work"]],
            "artifact": [item.artifact.folder for item in batch["work"]],
            "of": batch["of"],
        }

    def _decode(self, item: Work) -> FactsweepError | None:
        """Answer a shard when the engine is free, and wait until it is published."""
        try:
            # Read while the engine is at the shard before this one.
            rows, n_left = remaining.todo(item), remaining.n_left(item)
            return self._answering.submit(self._answer, item, rows, n_left).result().result()
        except Exception as error:
            return self._told(error)

    def _answer(self, item: Work, rows: pl.DataFrame, n_left: int) -> Future[FactsweepError | None]:
        """Answer a shard, and hand it on to be published; or what is told in place of that."""
        told: FactsweepError | None = self._hopeless
        if told is None:
            try:
                return self._answered(item, rows, n_left)
            except Exception as error:
                told = self._told(error)  # here: the next shard is not begun meanwhile
        # An error may end the run: it comes when what was handed on before is published.
        return self._publishing.submit(lambda: told)

    def _answered(
        self, item: Work, rows: pl.DataFrame, n_left: int
    ) -> Future[FactsweepError | None]:
        run = self._run
        here = software(run.method.ask.ability, run.decoding)
        check_planned({"software": here}, item.artifact)
        if self._is_asked():
            raise StoppedError
        loaded, tokenizer = self._loading.result()
        if item.adapter is not None:
            loaded.adapt(item.adapter)
        self._show_first(item, rows, tokenizer)
        with ExitStack() as on_duty:
            on_duty.enter_context(self._watchdog.on_guard(run.cluster.stall_s))
            on_duty.enter_context(leaving.at_work())
            item = self._begun(item, n_left)
            self._prove(item, loaded, tokenizer)
            self._lives("asked", shard_name(item))
            self._note(item, "begins")
            report = partial(self._report, item)
            publish = decode.answer(item, rows, loaded, tokenizer, report, self._purse)
            return self._publishing.submit(self._publish, item, publish, on_duty.pop_all())

    def _publish(self, item: Work, publish: Callable[[], None], on_duty: ExitStack) -> None:
        """Publish what is answered; one shard at a time."""
        with on_duty:
            publish()
            self._tally.end.remote(self._name, shard_name(item))
            self._note(item, "has published")

    def _told(self, error: Exception) -> FactsweepError | None:
        """What is told of an error; one that is none of ours ends this process."""
        if isinstance(error, StoppedError):
            return self._stopped(error)
        if isinstance(error, DecodingError):
            return DecodingError(f"{error} The last one died of {self._last_death()}.")
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
        if self._is_asked() or ray.get(self._tally.is_leaving.remote(self._name)):
            self._leave()
        return None

    def _prove(self, item: Work, loaded: Clocked, tokenizer: Any) -> None:
        """Where the engine before this one answered nothing, ask one other prompt by itself.

        So a prompt that kills is told from an engine that cannot answer.
        """
        if self._has_answered or not (suspects := self._lives("suspects")):
            return
        row = remaining.other_prompt(item, suspects)
        if row.is_empty():
            return
        self._lives("asked", row["prompt_id"][0])
        for _ in item.question.task.answered(row, loaded, tokenizer):
            self._lives("answered")
        self._has_answered = True

    def _lives(self, event: str, *details: str) -> Any:
        return ray.get(self._tally.lives.remote(event, self._name, *details))

    def _died(self, why: str, log: Path) -> DecodingError | None:
        """Tell that an engine died here; returns an error where no other is to be tried."""
        hopeless = self._lives("died", why)
        if not hopeless:
            return None
        return cause.with_log(DecodingError(f"{self._run.model.name} {hopeless}"), log)

    def _last_death(self) -> str:
        return str(ray.get(self._tally.last_death.remote()))

    def _show_first(self, item: Work, rows: pl.DataFrame, tokenizer: Any) -> None:
        """Show the first prompt as the model reads it, if no engine was ready before this one."""
        if not self._is_first:
            return
        self._is_first = False
        text = rows["text"].head(1).to_list()
        for ids in item.question.task.token_ids(tokenizer, text):
            self._tally.say.remote(f"first prompt, {len(ids)} tokens: {visible(tokenizer, ids)!r}")

    def _begun(self, item: Work, n_left: int) -> Work:
        """Tell that the shard is begun; returns it with what is answered again of it."""
        self._watchdog.beat()
        work = (self._name, shard_name(item), n_answers(item, n_left))
        begun: Begun = ray.get(self._tally.begin.remote(*work))
        if begun.stop or self._is_asked():
            raise StoppedError
        return replace(item, again=begun.again)

    def _report(self, item: Work, counts: dict[str, float]) -> bool:
        self._watchdog.beat()
        engine, _ = self._loading.result()
        refused, self._n_refused = self._n_refused, s3_client.REFUSED.times
        done = {**counts, **engine.faults(), "store_refused": self._n_refused - refused}
        asked = bool(ray.get(self._tally.add.remote(done, self._name, shard_name(item))))
        return asked or self._is_asked()

    def _is_asked(self) -> bool:
        """Whether this process or this node is to end, and no other."""
        return self._stopping or leaving.is_asked()

    def _leave(self) -> None:
        """End, so that Ray hands the shard to another engine; what is finished is published."""
        self._publishing.shutdown()
        self._lives("ended")
        if leaving.is_asked():
            # Ray does not know yet, and would start another engine here. The node ends this one.
            time.sleep(_GOING_S)
        self._end(0)

    def _end(self, code: int) -> None:
        """End this process when what was handed on to be published is."""
        self._publishing.shutdown()
        os._exit(code)

    def _note(self, item: Work, what: str) -> None:
        """Write into the log of this engine what it is at."""
        sys.stderr.write(f"{logs.line(f'engine {self._name} {what} shard {shard_name(item)}')}\n")
        sys.stderr.flush()

    def _stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True
