"""Whatever it is given, a command ends with a result, or with one sentence that names the fault.

Everything runs in this process without an engine, a cluster or the hub: `plan` reads the
configuration, the data and the model, `score` reads answers, jobs are printed, and a night stops
where its first run would begin.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import huggingface_hub.constants
import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import DecodingError
from factsweep.pipeline.config.compose import compose_config
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.studies import night
from tests.pipeline.fuzz.ends import (
    OVERRIDES,
    VALUES,
    File,
    damaged,
    dumped,
    ends_well,
    fuzz,
    mutated,
    names,
    tables,
)

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[3]
Compute = Callable[..., Plan]


VERBS = ("plan", "status", "verify", "score", "model", "describe", "report", "export", "compare")


@fuzz
@given(verb=st.sampled_from(VERBS[:4]), overrides=st.lists(OVERRIDES, min_size=1, max_size=2))
def test_any_override_ends_in_a_result_or_a_sentence(
    verb: str, overrides: list[str], base: list[str]
) -> None:
    ends_well(verb, *base, *(each for each in overrides if "address" not in each))


@pytest.mark.slow
@fuzz
@given(verb=st.sampled_from(VERBS), arguments=st.lists(st.text(max_size=8) | VALUES, max_size=3))
def test_any_arguments_end_in_a_result_or_a_sentence(
    verb: str, arguments: list[str], fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fresh())
    ends_well(verb, *arguments)


@fuzz
@given(data=st.data(), verb=st.sampled_from(["plan", "describe"]))
def test_any_rows_end_in_a_result_or_a_sentence(
    data: st.DataObject,
    verb: str,
    base: list[str],
    small_rows: pl.DataFrame,
    fresh: Callable[[], Path],
) -> None:
    path = data.draw(tables(small_rows[:30:4]), label="file").written(fresh())
    if verb == "describe":
        ends_well("describe", "myriadlama-mini", "--path", str(path))
    else:
        ends_well("plan", *base, f"benchmark.path={path}")


@fuzz
@given(data=st.data(), verb=st.sampled_from(["plan", "describe", "catalog"]))
@pytest.mark.parametrize("name", ["kamel-mini", "probelm-mini"])
def test_any_files_of_a_layout_end_in_a_result_or_a_sentence(
    name: str, data: st.DataObject, verb: str, base: list[str], fresh: Callable[[], Path]
) -> None:
    folder = fresh()
    source = ROOT / "data_catalog/mini" / name
    for path in source.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".csv"):
            File(str(path.relative_to(source)), path.read_bytes()).written(folder)
    path = data.draw(st.sampled_from(sorted(p for p in folder.rglob("*") if p.is_file())))
    path.write_bytes(data.draw(damaged(path.read_bytes()) | mutated_lines(path)))
    asked = {
        "plan": ["plan", *base, f"benchmark={name}", f"benchmark.path={folder}"],
        "describe": ["describe", name, "--path", str(folder)],
        "catalog": ["catalog", "verify", name, "--path", str(folder)],
    }
    ends_well(*asked[verb])


def mutated_lines(path: Path) -> st.SearchStrategy[bytes]:
    """A file of JSON or JSONL, a value of which is another."""
    if path.suffix == ".csv":
        return damaged(path.read_bytes())
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    dumped = mutated([json.loads(line) for line in lines]).map(
        lambda found: [json.dumps(each) for each in found] if isinstance(found, list) else ["{}"]
    )
    return dumped.map(lambda found: "\n".join(found).encode())


@pytest.fixture(scope="module")
def answers(base: list[str], compute_here: Compute) -> pl.DataFrame:
    """The answers of the small run."""
    run: Run = load(base)
    return compute_here(run).branches[0].answers.read_all("generations")


@pytest.mark.slow
@fuzz
@given(data=st.data())
def test_any_answers_end_in_a_result_or_a_sentence(
    data: st.DataObject, answers: pl.DataFrame, base: list[str], fresh: Callable[[], Path]
) -> None:
    path = data.draw(tables(answers), label="file").written(fresh())
    ends_well("score", *base, f"answers={path}")


FILES = (
    *("config.json",) * 4,
    *("tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights."""
    from tests import tiny_models

    return tiny_models.save("llama", tmp_path_factory.mktemp("tiny") / "mine")


@pytest.mark.slow
@fuzz
@given(data=st.data(), name=st.sampled_from(FILES), verb=st.sampled_from(["plan", "model"]))
def test_any_model_folder_ends_in_a_result_or_a_sentence(
    data: st.DataObject,
    name: str,
    verb: str,
    tiny: Path,
    base: list[str],
    fresh: Callable[[], Path],
) -> None:
    folder = fresh() / "mine"
    shutil.copytree(tiny, folder)
    content = (folder / name).read_bytes()
    broken = damaged(content)
    if name.endswith(".json"):
        broken |= mutated(json.loads(content)).map(lambda found: json.dumps(found).encode())
    (folder / name).write_bytes(data.draw(broken, label=name))
    own = [each for each in base if not each.startswith("model.")]
    if verb == "plan":
        ends_well("plan", f"model={folder}", *own)
    else:
        ends_well("model", "show", str(folder))


MODELS = ("gpt2", "smollm2-135m", "any", "encoder")
OWN = [
    *(path for path in (ROOT / "conf").glob("*/*.yaml") if path.parent.name != "model"),
    *(path for path in (ROOT / "conf/model").rglob("*.yaml") if path.stem in MODELS),
    *(ROOT / "data_catalog").glob("*-mini.yaml"),
]


@pytest.mark.slow
@fuzz
@given(data=st.data(), path=st.sampled_from(sorted(OWN)), renamed=st.booleans())
def test_any_own_folder_ends_in_a_result_or_a_sentence(
    data: st.DataObject, path: Path, renamed: bool, base: list[str], fresh: Callable[[], Path]
) -> None:
    group = path.relative_to(ROOT / "conf" if "conf" in path.parts else ROOT).parent
    plain = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
    content = data.draw(damaged(path.read_bytes()) | mutated(plain).map(dumped), label="file")
    name = "mine" if renamed else path.stem
    folder = fresh()
    File(f"{group}/{name}.yaml", content).written(folder)
    asked = {
        "comparison": ["compare", "a", "b", f"results={folder}"],
        "nightly": ["baseline", "show", name],
        "data_catalog": ["catalog", "verify", name],
        "benchmark": ["plan", f"benchmark={name}", base[-2]],
    }
    chosen = f"{group}/{name}".replace("/", "=", 1)
    ends_well(*asked.get(group.parts[0], ["plan", *base, chosen]), "--config-dir", str(folder))


CLUSTERS = ("ray", "slurm", "kuberay")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """No hub, and a folder of its own for what is kept."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", f"{place}/hub")
    monkeypatch.setenv("FACTSWEEP_HOME", f"{place}/home")


@st.composite
def launched(draw: st.DrawFn) -> list[str]:
    """Overrides of a run on a cluster, one or two of them odd."""
    kind = draw(st.sampled_from(CLUSTERS))
    own = [
        name for name in names(compose_config([f"cluster={kind}"])) if name.startswith("cluster.")
    ]
    odd = st.builds("{}={}".format, st.sampled_from(own), VALUES) | OVERRIDES
    return [f"cluster={kind}", *draw(st.lists(odd, min_size=1, max_size=2))]


@pytest.mark.slow
@fuzz
@given(overrides=launched(), places=st.sampled_from(["s3://bucket/a", "/shared", "a", "s3://"]))
def test_any_launch_ends_in_a_job_or_a_sentence(
    overrides: list[str], places: str, base: list[str]
) -> None:
    own = [each for each in base if not each.startswith(("artifacts=", "results="))]
    there = [f"artifacts={places}", f"results={places}", "cluster.device=cpu"]
    ends_well("launch", "--dry-run", *own, *there, *overrides)


@pytest.fixture
def _no_night(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a night fail before anything is computed."""

    def stopped(*_: object) -> NoReturn:
        raise DecodingError("nothing is decoded here.")

    monkeypatch.setattr(night, "ask_members", stopped)


DATES = st.builds("--date={}".format, VALUES) | st.just("--date=2026-11-01")


@fuzz
@given(
    typed=st.lists(DATES | OVERRIDES, max_size=3),
    name=st.sampled_from(["demo", "llama3", "nope", "demo.yaml"]) | VALUES,
)
@pytest.mark.usefixtures("_no_night")
def test_any_arguments_of_a_night_end_in_a_sentence(
    typed: list[str], name: str, base: list[str], fresh: Callable[[], Path]
) -> None:
    places = [each for each in base if each.startswith("artifacts=")]
    ends_well("nightly", *typed, name, f"results={fresh()}", *places)


@fuzz
@given(data=st.data())
@pytest.mark.usefixtures("_no_night")
def test_any_file_of_a_night_ends_in_a_sentence(
    data: st.DataObject, base: list[str], fresh: Callable[[], Path]
) -> None:
    text = (ROOT / "conf/nightly/demo.yaml").read_bytes()
    content = data.draw(damaged(text) | mutated(yaml.safe_load(text)).map(dumped), label="file")
    path = File("mine.yaml", content).written(fresh())
    own = [each for each in base if not each.startswith("results=")]
    ends_well("nightly", str(path), *own, f"results={path.parent}/results")


FETCHED_MODELS = ("gpt2", "llama3-8b,gpt2", "nope", ",", "gpt2,")
SETS = ("myriadlama-mini", "myriadlama-mini,kamel-mini", "kamel", "nope", "myriadlama")
FETCHED = st.one_of(
    st.just([]),
    st.sampled_from(FETCHED_MODELS).map(lambda name: [f"model={name}"]),
    st.sampled_from(SETS).map(lambda name: [f"benchmark={name}"]),
)


@fuzz
@given(chosen=FETCHED, overrides=st.lists(OVERRIDES, max_size=2))
def test_any_prefetch_ends_in_a_line_each_or_a_sentence(
    chosen: list[str], overrides: list[str], base: list[str]
) -> None:
    of_hub = any(each.startswith("model=") for each in chosen)
    own = ["model.dtype=float32"] if of_hub else base
    ends_well("prefetch", *own, *chosen, *overrides)
