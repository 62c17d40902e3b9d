"""A small set of facts, a model without weights, and a run on them with the fake engine.

What is tested here is what is stored, read, scheduled and reported, so the answers may be fake.
"""

import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import ray
import yaml
from matplotlib.figure import Figure
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from factsweep.operators.engines.protocol import Engine
from factsweep.operators.methods.method import Report, Result
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import report
from factsweep.pipeline.runs.run import measure_run
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.stages.step import SingleProcess, note_time
from tests.pipeline.here import make_here

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
NightlyFile = Callable[..., str]

_FEW = [
    "model.max_model_len=235",  # some prompts do not fit
    "decoding.max_failed_share=0.9",
    "decoding.samples.n_answers=25",
    "metrics.n_draws=20",
    "metrics.n_rounds=5",
    "artifacts=artifacts",
    "results=results",
]
_PAIRS = {
    "P30": {
        "France": "Europe",
        "Ghana": "Africa",
        "Peru": "South America",
        "Spain": "Europe",
        "Japan": "Asia",
        "Italy": "Europe",
    },
    "P36": {
        "France": "Paris",
        "Georgia": "Tbilisi",  # the country, and below the state: two pairs, the same prompts
        "Georgia (US)": "Atlanta",
        "Peru": "Lima",
        "Spain": "Madrid",
        "Japan": "Tokyo",
        "Italy": "Rome",
    },
}
_TEMPLATES = {
    "P30": ["[X] lies in [Y].", "[X] is a part of [Y].", "Where is [X]? [Y].", "In [Y] is [X]."],
    "P36": ["[Y] rules [X].", "The capital of [X] is [Y].", "What rules [X]? [Y].", "[X] has [Y]."],
}


@pytest.fixture(scope="module", autouse=True)
def undrawn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Figures are written without being drawn, but in a module that says `DRAWN = True`."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "DRAWN", False):
            patch.setattr(Figure, "savefig", _save_nothing)
        yield


def _save_nothing(_figure: Figure, file: Any, **_: Any) -> None:
    """A picture of nothing, as text or bytes."""
    picture = '<svg xmlns="http://www.w3.org/2000/svg"></svg>'
    file.write(picture if isinstance(file, io.StringIO) else picture.encode())


@pytest.fixture(scope="session")
def small_rows() -> pl.DataFrame:
    """13 pairs of 2 relations, in 4 templates each: 72 prompts, two of which stand twice."""
    rows = [
        {
            "rel_uri": relation,
            "template": template,
            "is_manual": number % 2 == 0,
            "sub_ent": subject.partition(" (")[0],
            "sub_uri": f"Q{index}",
            "sub_aliases": [f"the land of {subject}"] if index % 2 and subject != "Georgia" else [],
            "obj_uris": [f"Q{index}0"],
            "obj_ents": [label],
            "obj_aliases": [[label.upper()]],
        }
        for relation, pairs in _PAIRS.items()
        for number, template in enumerate(_TEMPLATES[relation])
        for index, (subject, label) in enumerate(pairs.items())
    ]
    return pl.DataFrame(rows)


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a model of that name: a tokenizer whose tokens are bytes, and no weights."""

    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("models") / name
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {character: i for i, character in enumerate(["</s>", *alphabet])}
        bytewise = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bytewise.decoder = decoders.ByteLevel()
        PreTrainedTokenizerFast(tokenizer_object=bytewise).save_pretrained(folder)
        (folder / "config.json").write_text(json.dumps({"model_type": "llama", "name": name}))
        return folder

    return make


@pytest.fixture(scope="session")
def small(
    make_model: Callable[[str], Path],
    small_rows: pl.DataFrame,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[str]:
    """The overrides of a small run with the fake engine."""
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    small_rows.write_parquet(path)
    return [
        "model.source=path",
        "model.name=tiny",
        f"model.id={make_model('tiny')}",
        f"benchmark.path={path}",
        "decoding.engine=fake",
        "decoding.samples.n_prompts=8",
        "metrics.n_draws=100",
        "metrics.n_rounds=20",
        "cluster.num_cpus=2",
        "cluster.rows_per_shard=16",
        "cluster.rows_per_chunk=5",
    ]


@cache  # Hydra takes a tenth of a second, and a test asks more than once
def _loaded(*overrides: str) -> Run:
    return load(list(overrides))


@pytest.fixture
def small_settings(small: list[str], tmp_path: Path) -> Settings:
    """Loads the small run, with more overrides, in folders of the test's own."""
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    return lambda *overrides: _loaded(*small, *folders, *overrides)


@pytest.fixture
def nightly_file(tmp_path: Path) -> NightlyFile:
    """Writes a nightly of such a name and such runs, with changes; returns its file."""

    def nightly_file(name: str, runs: list[list[str]], /, **changes: Any) -> str:
        content = {
            "runs": runs,
            "fresh": True,
            "max_flip_rate": 0.05,
            "comparison": {"smallest_difference": 0.05, "n_rounds": 200},
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content | changes))
        return str(path)

    return nightly_file


@pytest.fixture(scope="session")
def compute_here() -> Compute:
    """Makes what is missing of a run, in this process: the stages without Ray."""

    def compute(settings: Run, engine: Engine | None = None) -> Plan:
        plan = build_plan(settings)
        make_here(plan, engine)
        return plan

    return compute


@pytest.fixture(scope="session")
def _finished_once(
    small: list[str], compute_here: Compute, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "artifacts"
    compute_here(load([*small, f"artifacts={folder}"]))
    return folder


@pytest.fixture
def finished(_finished_once: Path, small_settings: Settings, tmp_path: Path) -> Plan:
    """The small run when all is done, in a copy that may be harmed."""
    shutil.copytree(_finished_once, tmp_path / "artifacts")
    return build_plan(small_settings())


@pytest.fixture
def prepared(finished: Plan) -> Plan:
    """The small run when its prompts are there and nothing is decoded."""
    for branch in finished.branches:
        for artifact in (*branch.list_outputs(), branch.matched, branch.metrics):
            artifact.store.drop(f"{artifact.folder}/manifest.json")
            for shard in artifact.shards(artifact.stage):
                artifact.store.drop(f"{artifact.folder}/{artifact.stage}/{shard}.parquet")
    return finished


@pytest.fixture(scope="session")
def _ray(small: list[str]) -> Iterator[None]:
    with cluster.start_ray(load(small)):
        yield


@pytest.fixture
def shared_ray(_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Ray for all tests of the session: starting it takes seconds."""
    monkeypatch.setattr(cluster, "start_ray", lambda *_, **__: nullcontext())


@pytest.fixture
def ray_address(_ray: None) -> str:
    """Where that Ray is found by other processes."""
    return str(ray.get_runtime_context().gcs_address)


def _all_that_is_read(_branch: object, result: Result) -> Report:
    """Every table and every answer of a result, in place of tables and figures made of them."""
    answers = {f"answers of {run.model}": found.all() for run, found in result.answers.items()}
    return Report({**result.tables, **answers, "pairs": result.facts.pairs}, {})


@pytest.fixture(scope="module")
def plain() -> Iterator[None]:
    """Results without pages and figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "report_result", _all_that_is_read)
        patch.setattr(report, "results_page", lambda *_: b"page")
        patch.setattr(report, "render", lambda *_, **__: "index")
        patch.setattr(report, "write_report", lambda store, found: None)
        patch.setattr(report, "report_files", lambda found: _table_files(found).items())
        yield


def _table_files(found: Report) -> dict[str, bytes]:
    """The tables of a report as files, in one format."""
    return {
        f"tables/{name}": table.write_ipc(None).getvalue() for name, table in found.tables.items()
    }


@pytest.fixture(scope="module")
def two_runs(small: list[str], make_model: Callable[[str], Path]) -> dict[str, list[str]]:
    """Two runs, of two models."""
    twin = [f"model.id={make_model('twin')}", "model.name=twin"]
    return {"one": [*small, *_FEW, "run_name=one"], "two": [*small, *_FEW, *twin, "run_name=two"]}


def _make_timed(plan: Plan) -> None:
    """Make a plan, and note what each artifact took."""
    make_here(plan)
    for step in plan.steps:
        with note_time(step.artifact, SingleProcess()):
            pass


@pytest.fixture(scope="module")
def sound(
    two_runs: dict[str, list[str]], plain: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with the artifacts and the results of both runs."""
    folder, here = tmp_path_factory.mktemp("sound"), Path.cwd()
    os.chdir(folder)
    for given in two_runs.values():
        measure_run(load(given), _make_timed)
    os.chdir(here)
    return folder


@pytest.fixture(scope="session")
def done(small: list[str], _finished_once: Path) -> Plan:
    """The small run when all is done, to be read alone: `finished` is a copy that may be harmed."""
    return build_plan(load([*small, f"artifacts={_finished_once}"]))
