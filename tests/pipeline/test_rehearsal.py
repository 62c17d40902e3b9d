"""A model that is not at hand is planned and rehearsed, and never taken for the real one."""

import json
from pathlib import Path

import pytest

from factsweep.operators.engines import fake
from factsweep.operators.errors import InputError, NotAtHandError
from factsweep.pipeline.cli import main
from factsweep.pipeline.commands import api
from factsweep.pipeline.commands import run as run_verbs
from factsweep.pipeline.commands.rehearsal import add_stand_ins
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import build_plan

_SLICE = ["benchmark=myriadlama-mini", "benchmark.relations=[P36]", "sweep=paper"]
_LARGE = ["model=llama3-70b", *_SLICE]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_without_the_model_is_approximate(folder: Path) -> None:
    text = str(api.plan(*_LARGE))
    assert "approximate     the tokenizer is not at hand: tokens are counted with" in text
    assert "on 4 GPUs per engine (model.tensor_parallel=4)" in text
    assert "zero-shot templates=manual\n  prompts         " in text
    assert "time            about " in text
    assert not any(path.name != "hub" for path in folder.iterdir())


@pytest.mark.parametrize("words", [["demo"], ["run_name=demo", "results=r"]])
def test_plan_of_a_past_run_is_never_approximate(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> None:
        raise NotAtHandError("its model is not at hand.")

    monkeypatch.setattr(run_verbs, "_find_run", refuse)
    assert main(["plan", *words]) == 2
    assert "its model is not at hand." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen3-8b", 8.24), ("pythia-410m", 0.422), ("mixtral-8x7b", 46.144)],
)
def test_size_without_the_model_is_that_of_its_name(name: str, billions: float) -> None:
    """Names round down: models of 8b count as larger than 8 billion, as their files say."""
    model = load([f"model={name}", *_SLICE, "model.source=absent"]).model
    assert (model.billions_of_parameters, model.max_model_len) == (billions, 4096)


def test_no_size_in_the_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"give model\.billions_of_parameters"):
        load(["model=phi4", "model.source=absent"])


def test_real_run_never_takes_the_stand_in(folder: Path) -> None:
    with pytest.raises(NotAtHandError, match="did not give meta-llama"):
        api.run(*_LARGE)
    with pytest.raises(InputError, match=r"has no weights here \(model.source=absent\)"):
        api.run(*_LARGE, "model.source=absent")
    assert not any(path.name != "hub" for path in folder.iterdir())


def test_rehearsal_has_recipes_and_folders_of_its_own() -> None:
    run = load(add_stand_ins([*_LARGE, "cluster=slurm", "artifacts=s3://real", "results=real"]))
    assert (run.cluster.address, run.model.tensor_parallel) == (None, 4)
    assert run.artifacts.startswith("rehearsal/")
    assert run.results == "rehearsal"
    assert run.model.name == "rehearsal-llama3-70b"
    for artifact, _ in (
        pair for branch in build_plan(run).branches for pair in branch.list_questions()
    ):
        assert artifact.recipe.fields["model"]["source"] == "absent"
        assert artifact.recipe.fields["software"]["engine"] == "fake 1"


@pytest.mark.slow
def test_rehearsal_is_killed_resumes_and_says_what_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(fake.WISH, json.dumps({"seconds_per_answer": 0.03}))
    few = ["decoding.samples.n_prompts=40", "decoding.samples.block_size=10"]
    assert main(["rehearse", *_LARGE, *few]) == 0
    printed = capsys.readouterr().out
    assert "rehearsal: killed at " in printed
    assert "No number of it is a model's." in printed
    results = folder / "rehearsal/rehearsal-llama3-70b-myriadlama-mini-sweep"
    assert '"absent"' in (results / "run.json").read_text()
    for name in ("tables/headline.md", "tables/missing.md", "index.html"):
        assert "rehearsal-llama3-70b" in (results / name).read_text(), name
    assert not (folder / "results").exists()
