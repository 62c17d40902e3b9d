"""How often an object store is asked: on a real S3 protocol, each request of which is counted.

A request takes some tens of milliseconds, whatever it asks, so it is their number that counts.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import polars as pl
import pytest

from operators.engines.fake import FakeEngine
from pipeline.config.settings import Run, load
from pipeline.costs.forecast import forecast
from pipeline.execution.made_of import check_inputs
from pipeline.execution.plan import Plan, planned
from pipeline.execution.repair import settle
from pipeline.execution.work import begin, work
from pipeline.inputs.models import tokenizer
from pipeline.stages import decode, remaining
from pipeline.storage import lease
from tests.s3_server import bucket, serving

N_SHARDS = 300


class Requests:
    """The requests that a server was sent since the last time."""

    def __init__(self, log: Path) -> None:
        self._log, self._seen = log, 0

    def new(self) -> list[str]:
        text = re.sub(r"\x1b\[\d+m", "", self._log.read_text())
        found = re.findall(r'"([A-Z]+ /sweeps\S*) HTTP', text)
        self._seen, before = len(found), self._seen
        return found[before:]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two relations of two templates: 600 prompts."""
    path = tmp_path_factory.mktemp("many") / "rows.parquet"
    rows = [
        {
            "rel_uri": relation,
            "template": template,
            "is_manual": True,
            "sub_ent": f"land {i}",
            "sub_uri": f"Q{i}",
            "sub_aliases": [],
            "obj_uris": [f"Q{i}0"],
            "obj_ents": [f"town {i}"],
            "obj_aliases": [[]],
        }
        for relation in ("P30", "P36")
        for template in ("[X] has [Y].", "In [X] is [Y].")
        for i in range(N_SHARDS // 2)
    ]
    pl.DataFrame(rows).write_parquet(path)
    return path


@pytest.fixture
def half(
    rows: Path, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Callable[..., Run], Requests]]:
    """Settings of a run on S3, half of whose shards are answered, and what the server is asked."""
    given = [
        *small,
        f"benchmark.path={rows}",
        f"results={tmp_path}/results",
        "cluster.rows_per_shard=2",
        "prompt=zero-shot",
    ]
    local = load([*given, f"artifacts={tmp_path}/artifacts"])
    answer_half(planned(local))
    with serving(tmp_path / "requests.log") as server:
        url = bucket(server.url, monkeypatch)
        client = boto3.client("s3")
        for path in Path(local.artifacts).rglob("*"):
            if path.is_file():
                key = str(path.relative_to(local.artifacts))
                client.put_object(Bucket="sweeps", Key=key, Body=path.read_bytes())
        requests = Requests(tmp_path / "requests.log")
        requests.new()
        yield lambda *more: load([*given, f"artifacts={url}", *more]), requests


def answer_half(plan: Plan) -> None:
    (branch,) = plan.branches
    for step in branch.steps:
        if step.artifact in (branch.facts, branch.prompts, branch.admitted):
            assert step.stage is not None
            check_inputs(step.artifact, [each.artifact for each in step.after])
            step.stage.make(step.artifact)
    for artifact in branch.answered():
        begin(branch, artifact)
    items = work(plan)
    assert len(items) >= N_SHARDS
    for item in items[: len(items) // 2]:
        decode.decode(item, FakeEngine(), tokenizer(plan.weights), lambda _: False)


def test_resume_is_planned_with_few_requests(
    half: tuple[Callable[..., Run], Requests],
) -> None:
    settings, requests = half
    plan = planned(settings())
    settle(plan, {}, Counter())
    items = work(plan)
    left = remaining.left(items)
    assert len(items) > N_SHARDS // 2
    assert len(requests.new()) < 200
    assert left[::50] == [remaining.n_left(each) for each in items[::50]]
    assert sum(left) > N_SHARDS // 4
    requests.new()
    forecast(settings())
    assert len(requests.new()) < 200


def test_shard_of_many_chunks_takes_few_requests_at_its_end(
    half: tuple[Callable[..., Run], Requests],
) -> None:
    settings, requests = half
    plan = planned(settings())
    item = replace(work(plan)[0], rows_per_chunk=1)
    with lease.held(plan.store, [item.artifact.folder], wait=False) as writer:
        held = replace(item.artifact, lease=writer.leases[item.artifact.folder])
        for n in range(31):
            held.put(f"{item.chunks}/0-{n:032x}.parquet", b"old")
            held.drop(f"{item.chunks}/0-{n:032x}.parquet")
        requests.new()
        decode.decode(
            replace(item, artifact=held), FakeEngine(), tokenizer(plan.weights), lambda _: False
        )
    assert len([each for each in requests.new() if each.startswith(("DELETE", "POST"))]) <= 3
