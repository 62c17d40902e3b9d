"""How often an object store is asked: on a real S3 protocol that counts its requests.

Each request takes some tens of milliseconds, so their number counts.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import polars as pl
import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.remaining_prompts import begin, list_work
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.runs.forecast import forecast
from factsweep.pipeline.runs.run import quarantine_listed_damage
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.stages.step import check_inputs
from factsweep.pipeline.storage import lease
from tests.pipeline.here import decode_here, opened
from tests.s3_server import bucket, serving

pytestmark = pytest.mark.slow
RELATIONS = [f"P{30 + i}" for i in range(21)]
SETTINGS = ("zero-shot", "4-template")
N_SHARDS = 2 * len(RELATIONS) * len(SETTINGS)
FEW = 3 * N_SHARDS  # some hundred, and one for each shard; one more would be too many


class Requests:
    """The requests that a server was sent since the last time."""

    def __init__(self, log: Path) -> None:
        self._log, self._seen = log, 0

    def new(self) -> list[str]:
        text = re.sub(r"\x1b\[\d+m", "", self._log.read_text())
        paths = re.findall(r'"([A-Z]+ /sweeps\S*) HTTP', text)
        self._seen, n_seen = len(paths), self._seen
        return paths[n_seen:]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """21 relations of six pairs: 126 prompts a setting."""
    path = tmp_path_factory.mktemp("many") / "rows.parquet"
    rows = [
        {
            "rel_uri": relation,
            "template": "[X] has [Y].",
            "is_manual": True,
            "sub_ent": f"land {i}",
            "sub_uri": f"Q{i}",
            "sub_aliases": [],
            "obj_uris": [f"Q{i}0"],
            "obj_ents": [f"town {i}"],
            "obj_aliases": [[]],
        }
        for relation in RELATIONS
        for i in range(6)
    ]
    pl.DataFrame(rows).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def half(
    rows: Path, small: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Run, Requests]]:
    """A run of two settings on S3, half of whose shards are answered; what that is asked."""
    folder = tmp_path_factory.mktemp("half")
    overrides = [
        *small,
        f"benchmark.path={rows}",
        f"results={folder}/results",
        "cluster.rows_per_shard=4",
        f"sweep.prompts=[{','.join(SETTINGS)}]",
    ]
    local = load([*overrides, f"artifacts={folder}/artifacts"])
    answer_half(build_plan(local))
    log = folder / "requests.log"
    with serving(log) as server, pytest.MonkeyPatch.context() as patch:
        url = bucket(server.url, patch)
        client = boto3.client("s3")
        for path in Path(local.artifacts).rglob("*"):
            if path.is_file():
                key = str(path.relative_to(local.artifacts))
                client.put_object(Bucket="sweeps", Key=key, Body=path.read_bytes())
        requests = Requests(log)
        requests.new()
        yield load([*overrides, f"artifacts={url}"]), requests


def answer_half(plan: Plan) -> None:
    for step in plan.steps:
        if step.stage is not None and step.artifact.stage not in ("matched", "metrics"):
            check_inputs(step.artifact, [work_item.artifact for work_item in step.after])
            step.stage.make(step.artifact)
    for branch in plan.branches:
        for artifact in branch.list_outputs():
            begin(branch, artifact)
    items = [work_item for work_item in list_work(plan) if work_item.table == "generations"]
    assert len(items) >= N_SHARDS
    for item in items[::2]:
        decode_here(item, FakeEngine(), tokenizer(plan.weights), lambda _: False)


def test_resume_is_planned_with_few_requests(half: tuple[Run, Requests]) -> None:
    run, requests = half
    requests.new()
    plan = build_plan(run)
    quarantine_listed_damage(plan, Counter())
    items = list_work(plan)
    n_left = remaining_prompts.count_left(items)
    assert len(requests.new()) < FEW
    assert len(items) >= N_SHARDS // 2
    assert n_left[::20] == [opened(item).n_left for item in items[::20]]
    assert sum(n_left) > 6 * len(RELATIONS) * len(SETTINGS) // 2
    requests.new()
    forecast(run)
    assert len(requests.new()) < FEW


def test_shard_of_many_chunks_takes_few_requests_at_its_end(half: tuple[Run, Requests]) -> None:
    run, requests = half
    plan = build_plan(run)
    item = replace(list_work(plan)[0], rows_per_chunk=1)
    with lease.hold_leases(plan.store, [item.artifact.folder], wait=False) as writer:
        artifact = replace(item.artifact, lease=writer.leases[item.artifact.folder])
        for n in range(31):
            artifact.put(f"{item.chunks}/0-{n:032x}.parquet", b"old")
            artifact.drop(f"{item.chunks}/0-{n:032x}.parquet")
        requests.new()
        decode_here(
            replace(item, artifact=artifact), FakeEngine(), tokenizer(plan.weights), lambda _: False
        )
    assert (
        len([token_ids for token_ids in requests.new() if token_ids.startswith(("DELETE", "POST"))])
        <= 3
    )
