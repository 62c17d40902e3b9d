"""Import factsweep: the lines of docs/python.md, and what they give."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import factsweep
from factsweep.operators.errors import InputError
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import Plan
from tests.messages import naming

ROOT = Path(__file__).parents[2]
Compute = Callable[..., Plan]


@pytest.fixture
def demo_without_weights(
    tmp_path: Path,
    make_model: Callable[[str], Path],
    compute_here: Compute,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder in which sweep=demo asks a fake engine little, and has done so without Ray."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(folders.VARIABLE, raising=False)
    for group, name, lines in (
        ("model", "smollm2-135m", {"source": "path", "id": str(make_model("smollm2-135m"))}),
        ("decoding", "default", {"engine": "fake"}),
        (
            "sweep",
            "demo",
            {"  relations": "[P36, P37]", "  pairs_per_relation": 5, "    n_prompts": 0},
        ),
    ):
        text = (folders.CONF / group / f"{name}.yaml").read_text()
        for key, value in lines.items():
            text = re.sub(rf"^{key}: .*$", f"{key}: {value}", text, flags=re.MULTILINE)
        own = tmp_path / folders.OWN / group / f"{name}.yaml"
        own.parent.mkdir(parents=True)
        own.write_text(text)
    compute_here(load(["sweep=demo"]))


@pytest.mark.slow
@pytest.mark.usefixtures("demo_without_weights")
def test_lines_of_the_docs_run_as_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    (lines,) = re.findall(
        r"```python\n(import factsweep\n.*?)```", (ROOT / "docs/python.md").read_text(), re.S
    )
    found: dict[str, Any] = {}
    exec(lines, found)
    assert "myriadlama-mini" in capsys.readouterr().out
    assert found["acc"]["value"].is_between(0, 1).all()
    assert set(found["wrong"]["relation_id"]) == {"P36"}


@pytest.fixture
def loaded(finished: Plan, small: list[str], tmp_path: Path) -> factsweep.Results:
    """The small run, which is done: its results are written and nothing is decoded."""
    return factsweep.run(
        *small, artifacts=tmp_path / "artifacts", results=tmp_path / "results", seed=0
    )


def test_run_gives_what_load_reads(loaded: factsweep.Results) -> None:
    again = factsweep.load(loaded.folder)
    assert again.metrics.equals(loaded.metrics)
    assert again.record == loaded.record
    assert str(again) == str(loaded)
    assert re.match(r"tiny on myriadlama-mini in \w+\n", str(loaded))


def test_answers_have_prompt_fact_and_judgement(loaded: factsweep.Results) -> None:
    answers = loaded.answers()
    assert answers.height == 72
    row = answers.filter(pair_id="P36.Q0", template_id="P36.001").row(0, named=True)
    assert (row["relation"], row["subject"], row["objects"]) == ("capital", "France", ["Paris"])
    assert row["template"] == "The capital of [X] is [Y]."
    assert row["prompt"].endswith("\nQ: The capital of France is [MASK].\nA:")
    assert isinstance(row["answer"], str)
    overall = loaded.metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")
    assert overall["n"].to_list() == [answers["correct"].count()]


def test_answers_of_equal_prompts_are_the_same(loaded: factsweep.Results) -> None:
    answers = loaded.answers("P36")
    again = answers.drop_nulls("same_as")
    assert again.height == 2
    first = dict(answers.select("prompt_id", "answer").iter_rows())
    assert again["answer"].to_list() == [first[each] for each in again["same_as"]]


def test_answers_of_an_unknown_relation_are_refused(loaded: factsweep.Results) -> None:
    with pytest.raises(InputError, match=naming("P1", "P30", "P36")):
        loaded.answers("P1")


def test_tables_and_figures_are_those_of_the_folder(loaded: factsweep.Results) -> None:
    folder = Path(loaded.folder)
    assert set(loaded.tables) == {path.stem for path in folder.glob("tables/*.csv")}
    assert set(loaded.figures) == {path.stem for path in folder.glob("figures/*.png")}
    assert loaded.facts.pairs.height == 13


def test_load_elsewhere_is_told_where_the_artifacts_lie(
    loaded: factsweep.Results, tmp_path: Path
) -> None:
    moved = (tmp_path / "artifacts").rename(tmp_path / "moved")
    with pytest.raises(InputError, match=naming("gone")):
        factsweep.load(loaded.folder).answers()
    assert factsweep.load(loaded.folder, moved).answers().height == 72


def test_load_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=naming("run.json", "give")):
        factsweep.load(tmp_path)


def test_plan_counts_the_work(small: list[str], tmp_path: Path) -> None:
    planned = factsweep.plan(*small, artifacts=tmp_path)
    assert "  prompts         72 (P30 36, P36 36)" in str(planned)
    assert planned.work.rows() == [
        ("4-template", "generations", 70, 70),
        ("4-template", "canary", 13, 13),
        ("4-template", "samples", 8, 800),
    ]
