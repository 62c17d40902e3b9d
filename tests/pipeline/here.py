"""A run in this process: the stages without Ray, a fake engine in place of a pool."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Engine
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.decode import answer, publish
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.decoding.open_shard import OpenShard, Report
from factsweep.pipeline.decoding.progress_counter import CostLimit
from factsweep.pipeline.decoding.remaining_prompts import Work, begin, finish, list_work
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.stages import facts
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan
from factsweep.pipeline.stages.step import check_inputs
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import quarantine
from factsweep.pipeline.storage.shard import Counts
from factsweep.pipeline.storage.store import to_json


class Dying:
    """An engine that dies after so many answers; it records their ids."""

    def __init__(self, engine: Any, lives: int) -> None:
        self._engine, self._lives, self.seen = engine, lives, list[str]()

    def scores(self, requests: Iterable[Any]) -> Iterator[Any]:
        return self._answers(self._engine.scores, requests)

    def preferences(self, requests: Iterable[Any]) -> Iterator[Any]:
        return self._answers(self._engine.preferences, requests)

    def _answers(self, ask: Callable[..., Iterator[Any]], requests: Any) -> Iterator[Any]:
        for result in islice(ask(requests), self._lives - len(self.seen)):
            self.seen.append(result.request_id)
            yield result
        if len(self.seen) == self._lives:
            raise RuntimeError("the engine died")


def make_here(plan: Plan, engine: Engine | None = None) -> None:
    """Make what is missing of a plan, in this process."""
    for step in plan.steps:
        if step.artifact.is_complete():
            continue
        if step.stage is not None:
            check_inputs(step.artifact, [each.artifact for each in step.after])
            step.stage.make(step.artifact)
            continue
        begin(next(each for each in plan.branches if step in each.steps), step.artifact)
        for item in [each for each in list_work(plan) if each.artifact == step.artifact]:
            decode_here(item, engine or FakeEngine(), tokenizer(plan.weights), lambda _: False)
        complete(plan, step.artifact)


def named_runs(folder: Path, *given: str) -> Callable[..., Run]:
    """Loads a run by name and overrides; its artifacts lie in a folder of its name."""

    def settings(name: str, *overrides: str) -> Run:
        sizes = ("metrics.n_rounds=20", "cluster.num_cpus=2")
        places = (f"artifacts={folder}/{name}", f"results={folder}/results", f"run_name={name}")
        return load([*given, *sizes, *places, *overrides])

    return settings


def labelled_prompts(run: Run) -> pl.DataFrame:
    """The prompts of a run's first setting, each with a right answer (`label`)."""
    branch = build_plan(run).branches[0]
    for artifact in (branch.facts, branch.prompts):
        branch.step(artifact).run()
    label = pl.col("objects").list.first().struct.field("labels").list.first()
    labels = facts.load(branch.facts).pairs.select("pair_id", label=label)
    return branch.prompts.read_all("prompts").join(labels, on="pair_id", maintain_order="left")


def opened(work: Work) -> OpenShard:
    """A shard as it is opened for an engine."""
    return OpenShard(work, remaining_prompts.read_prompts(work))


def answered_here(
    work: Work,
    engine: Any,
    reads: Any,
    report: Report,
    purse: CostLimit | None = None,
    again: int = 0,
) -> OpenShard:
    """Answer the prompts of a shard that have no answer yet; it is not published."""
    shard, clocked = opened(work), TimedEngine(engine)
    shard.begin(clocked, report, again)
    (answered,) = answer(shard, clocked, reads, purse=purse)
    return answered


def decode_here(
    work: Work,
    engine: Any,
    reads: Any,
    report: Report,
    purse: CostLimit | None = None,
    again: int = 0,
) -> None:
    """Answer the prompts of a shard that have no answer yet, and publish it."""
    publish(answered_here(work, engine, reads, report, purse, again))


def complete(plan: Plan, artifact: Artifact) -> None:
    """Publish the manifest of what an engine wrote, as it is there."""
    for branch in plan.branches:
        for asked, question in branch.list_questions():
            if asked.folder == artifact.folder:
                finish(branch, asked, question)


def overwrite(
    artifact: Artifact, table: str, shard: str, frame: pl.DataFrame, counts: Counts | None = None
) -> None:
    """Publish a shard in place of the one that is published."""
    quarantine(artifact, f"{artifact.folder}/{table}/{shard}.parquet")
    artifact.publish(table, shard, frame, counts)


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a run.json as another run would have written it."""
    content = json.loads(path.read_bytes())
    change(content)
    path.write_bytes(to_json(content))


def without(plan: Plan, *roles: str) -> Plan:
    """The plan without the steps that make these: "matched", "metrics"."""

    def kept(branch: Branch) -> Branch:
        gone = [getattr(branch, role) for role in roles]
        return replace(branch, steps=tuple(s for s in branch.steps if s.artifact not in gone))

    return replace(plan, branches=tuple(map(kept, plan.branches)))
