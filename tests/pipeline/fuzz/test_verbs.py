"""launch, nightly, prefetch and build, whatever they are given: a result, or one sentence.

Nothing is submitted, decoded or fetched: jobs are printed, a night stops where its first run would
begin, and the hub does not answer.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import huggingface_hub.constants
import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.construction import kamel, myriadlama, probelm
from factsweep.operators.errors import DecodingError
from factsweep.pipeline.config.compose import composed
from factsweep.pipeline.studies import night
from tests.pipeline.fuzz.ends import OVERRIDES, VALUES, File, dumped, ends_well, fuzz, names, tables
from tests.pipeline.fuzz.mutations import damaged, mutated

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[3]
CLUSTERS = ("ray", "slurm", "kuberay")
DUMP = """[
{"type": "item", "id": "Q1", "labels": {"en": {"language": "en", "value": "France"}}, "claims":
{"type": "item", "id": "Q3", "labels": {"en": {"value": "Paris"}}, "aliases": [], "sitelinks": {}},
{"type": "property", "id": "P36", "labels": {"en": {"language": "en", "value": "capital"}}}
]
"""
CLAIMS = '{"P36": [{"mainsnak": {"datavalue": {"value": {"id": "Q3"}}}, "rank": "normal"}]}},'
LABELS = pl.DataFrame(
    {
        "entity_id": [f"Q{n}" for n in range(6)],
        "labels": [["France", "La France"], ["Peru"], ["Rome"], ["Lima"], ["Paris"], ["Oslo"]],
    },
    schema=kamel.LABELS,
)


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
    own = [name for name in names(composed([f"cluster={kind}"])) if name.startswith("cluster.")]
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

    monkeypatch.setattr(night, "ask", stopped)


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


MODELS = ("gpt2", "llama3-8b,gpt2", "nope", ",", "gpt2,")
SETS = ("myriadlama-mini", "myriadlama-mini,kamel-mini", "kamel", "nope", "myriadlama")
FETCHED = st.one_of(
    st.just([]),
    st.sampled_from(MODELS).map(lambda name: [f"model={name}"]),
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


def sources() -> Mapping[str, Mapping[str, Any]]:
    """What sets are made of: tables, and texts."""
    triples = [("P36", "Q0", "Q4"), ("P36", "Q1", "Q3"), ("P17", "Q2", "Q0")]
    of_kamel = [(*each, None) for each in triples]
    known = [(s, r, o) for r, s, o in triples]
    relation = {
        "relation_id": "P36",
        "relation": "capital",
        "statement": "<object> rules <subject>.",
        "question": "Who rules <subject>? <object>.",
        "asked": "object",
        "max_answers": "5",
    }
    fact = {
        "subject_id": "Q0",
        "subject_label": "France",
        "relation_id": "P36",
        "object_id": "Q4",
        "object_label": "Paris",
    }
    return {
        "kamel": {
            "triples": pl.DataFrame(of_kamel, kamel.TRIPLES, orient="row"),
            "labels": LABELS,
            "questions": b"P36, What is the capital of [S]?\nP17, Where is [S]?\n",
        },
        "myriadlama": {
            "facts": pl.DataFrame(triples, myriadlama.FACTS, orient="row"),
            "labels": LABELS,
            "knowledge": pl.DataFrame([("P36", "Q0", "Q5")], myriadlama.FACTS, orient="row"),
            "templates": b"P36, [Y] is the capital of [X].\nP17, [X] lies in [Y].\n",
        },
        "probelm": {
            "before": pl.DataFrame(known, probelm.TRIPLES, orient="row"),
            "after": pl.DataFrame([*known, ("Q0", "P36", "Q5")], probelm.TRIPLES, orient="row"),
            "labels": LABELS,
            "relations": pl.DataFrame([relation]),
        },
        "knowledge-base": {"facts": pl.DataFrame([fact]), "aliases": LABELS},
        "dump": {"dump": DUMP.replace('"claims":', f'"claims": {CLAIMS}').encode()},
    }


GIVEN = {
    "kamel": {"sizes": ["1", "1", "1"], "seed": ["0"], "max-answers": ["10"]},
    "myriadlama": {"n": ["2"], "rounds": ["2"], "languages": ["en"]},
    "probelm": {"frame": ["112023"], "max-similarity": [".9"], "alternatives": ["1"], "seed": "0"},
    "knowledge-base": {},
    "dump": {"languages": ["en"], "lines-per-part": ["2"], "workers": ["1"]},
}
ALONE = ("workers",)  # which asks for processes


def changed(name: str, content: Any) -> st.SearchStrategy[File]:
    """A file that is not what it was: of a text, or of a table in any format."""
    if isinstance(content, bytes):
        return damaged(content).map(lambda found: File(f"{name}.csv", found))
    return tables(content).map(lambda file: File(file.name.replace("a.", f"{name}."), file.content))


@fuzz
@given(data=st.data())
@pytest.mark.parametrize("kind", GIVEN)
def test_any_build_ends_in_a_set_or_a_sentence(
    kind: str, data: st.DataObject, fresh: Callable[[], Path]
) -> None:
    folder, made_of, options = fresh(), sources()[kind], dict(GIVEN[kind])
    chosen = data.draw(st.sampled_from([*made_of, "option"]), label="which")
    files = {}
    for name, content in made_of.items():
        if name == chosen:
            files[name] = data.draw(changed(name, content), label="file").written(folder)
        elif isinstance(content, bytes):
            files[name] = File(f"{name}.csv", content).written(folder)
        else:
            files[name] = folder / f"{name}.parquet"
            content.write_parquet(files[name])
    if chosen == "option" and (free := [name for name in options if name not in ALONE]):
        name = data.draw(st.sampled_from(free))
        options[name] = [data.draw(VALUES, label=name) for _ in options[name]]
    typed = [f"--{name}={path}" for name, path in files.items()]
    typed += [part for name, values in options.items() for part in (f"--{name}", *values)]
    verb = "knowledge-base" if kind == "dump" else kind
    ends_well("build", verb, *typed, "--out", str(folder / "set"))
