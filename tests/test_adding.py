"""docs/adding.md: each recipe followed to the letter, in a folder of its own."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "adding.md").read_text()
COPIED = ("conf", "data_catalog", "docs", "factsweep", "operators", "pipeline", "pyproject.toml")
FIXTURES = (
    "tests/builders.py",
    "tests/operators/conftest.py",
    "tests/operators/metrics/scalars.py",
    "tests/operators/metrics/shared",
)
CACHES = {"__pycache__", ".hypothesis"}

SHOW = """
import polars as pl
from factsweep.operators.methods import METHODS
from factsweep.operators.metrics.belief.belief import ESTIMATED, answer_rows, condense
from factsweep.operators.metrics.shared.rows import higher_is_better
from factsweep.operators.pages.page import terms_of
from factsweep.operators.tables.belief import headline
answers = pl.DataFrame({
    "relation_id": ["P1"] * 2, "pair_id": ["t1", "t2"], "template_id": ["a"] * 2,
    "key": ["\\x1fguitar\\x1f", None], "n_lemmas": [1, 0], "correct": [True, False],
    "text": [" guitar", ""],
})
failed = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})
condensed = condense(answers)
estimates = condensed.estimates(ESTIMATED, seed=1, n_rounds=10)
rows = answer_rows(condensed.counts(failed), estimates)
run = {"model": "m", "benchmark": "b", "setting": "zero-shot"}
metrics = rows.with_columns(pl.lit(text).alias(name) for name, text in run.items())
method = METHODS["belief"]
print(*method.show.card(metrics).filter(metric="length").row(0))
print(*headline(metrics).select("one-word", "length", "oracle").row(0))
print(terms_of(["length"], method.measure.metrics)["length"].meaning)
print("answer_length" in higher_is_better(method.measure.metrics))
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of the page: its language, the file that it is, and its text."""

    language: str
    file: str
    text: str


@dataclass
class Followed:
    """What a recipe wrote, what it changed, and what its commands printed."""

    new: list[str]
    changed: list[str]
    printed: list[str]


def blocks(title: str) -> Iterator[Block]:
    """The blocks of a section that are a file, a change of one, or commands."""
    section = re.split(rf"^##+ {title}$", PAGE, flags=re.M)[1]
    section = re.split(r"^##+ ", section, maxsplit=1, flags=re.M)[0]
    for language, file, text in re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", section, re.M | re.S):
        if file or language == "sh":
            yield Block(language, file, text)


def follow(title: str, folder: Path, tree: Path) -> Followed:
    """Do what a section says in the folder, with the code of the tree."""
    outcome = Followed([], [], [])
    for block in blocks(title):
        path = folder / block.file
        if block.language == "sh":
            outcome.printed += [run(line, folder, tree) for line in block.text.splitlines()]
        elif block.language == "diff":
            path.write_text(patched(path.read_text(), block.text))
            outcome.changed.append(block.file)
        else:
            assert not path.exists(), f"{block.file} is there already"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            outcome.new.append(block.file)
    return outcome


def patched(text: str, diff: str) -> str:
    """The text with each part of a diff applied, which must fit in one place."""
    for part in diff.split("@@\n"):
        lines = part.splitlines(keepends=True)
        old, new = (
            "".join(line[1:] or "\n" for line in lines if line[0] in marks)
            for marks in (" -\n", " +\n")
        )
        assert text.count(old) == 1, f"found {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text


def run(command: str, folder: Path, tree: Path) -> str:
    """What a command of the page prints."""
    # Marks of this process's own Ray and vLLM would be taken for the new one's.
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "VLLM_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outcome = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            **ours,
            "PATH": path,
            "PYTHONPATH": str(tree),
            "PYTEST_ADDOPTS": "-p no:cacheprovider --hypothesis-profile=ci",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, f"{command}\n{outcome.stdout}{outcome.stderr}"
    return outcome.stdout


def files(tree: Path) -> dict[str, bytes]:
    """The content of every file but caches, artifacts and results."""
    folders = [path for path in tree.iterdir() if path.name not in {"artifacts", "results"}]
    matched = (
        path for folder in folders for path in (folder, *folder.rglob("*")) if path.is_file()
    )
    return {str(p.relative_to(tree)): p.read_bytes() for p in matched if not CACHES & {*p.parts}}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the project."""
    folder = tmp_path / "tree"
    for name in (*COPIED, *FIXTURES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns(*CACHES)
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def counted(kind: str) -> tuple[int, int, int]:
    """What the page's table says: new files, files that get a line, tests."""
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| ") and kind in line]
    numbers = [re.match(r"\d*", cell.strip()) for cell in row.split("|")[2:5]]
    new, changed, tests = (int(matched[0] or 0) for matched in numbers if matched)
    return new, changed, tests


def followed(title: str, tree: Path, kind: str) -> Followed:
    """A recipe followed in the tree, with as many files as the page says, and clean code."""
    old_files = files(tree)
    outcome = follow(title, tree, tree)
    new_files = files(tree)
    assert {name for name in new_files if old_files.get(name) != new_files[name]} == {
        *outcome.new,
        *outcome.changed,
    }
    tests = [name for name in outcome.new if name.startswith("tests/")]
    assert (len(outcome.new) - len(tests), len(outcome.changed), len(tests)) == counted(kind)
    code = [name for name in outcome.new + outcome.changed if name.endswith(".py")]
    for check in ("ruff check", "ruff format --check"):
        run(f"{check} --no-cache {' '.join(code)}", tree, tree)
    return outcome


def test_page_names_every_recipe_that_is_followed() -> None:
    titles = (
        "A model",
        "Answers from another system",
        "Scores of candidates",
        "A data set",
        "Another format",
        "A metric",
        "A benchmark",
        "An engine",
    )
    assert all(list(blocks(title)) for title in titles)
    fenced = re.findall(r"^```(?:\w+ \S+|sh)$", PAGE, re.M)
    assert len(fenced) == sum(len(list(blocks(title))) for title in titles)


@pytest.mark.chaos  # as tests/pipeline/test_any_model.py
def test_model_is_a_folder_or_a_file_that_names_it(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "tests/tiny_models.py"))["save"]("llama", tmp_path / "mine")
    outcome = follow("A model", tmp_path, ROOT)
    assert (outcome.new, outcome.changed, counted("[a model]")) == ([], [], (0, 0, 0))
    read = yaml.safe_load((tmp_path / "factsweep.d/model/pinned.yaml").read_text())
    assert (read["name"], read["max_model_len"]) == ("mine", 4096)
    assert "at most 4,096 tokens" in outcome.printed[-1]


@pytest.mark.slow
def test_answers_of_another_system_are_scored(tmp_path: Path) -> None:
    outcome = follow("Answers from another system", tmp_path, ROOT)
    written, answered, card = outcome.printed
    assert (outcome.new, written, answered) == (
        ["answers.py"],
        "prompts.jsonl: 12,700 prompts\n",
        "",
    )
    (accuracy,) = (line for line in card.splitlines() if "| Acc@1" in line)
    assert accuracy in PAGE


@pytest.mark.slow
def test_candidates_scored_by_another_system_are_measured(tmp_path: Path) -> None:
    outcome = follow("Scores of candidates", tmp_path, ROOT)
    written, _, card = outcome.printed
    assert (outcome.new, written) == (["scores.py"], "candidates.jsonl: 2,739 prompts\n")
    metrics = pl.read_parquet(tmp_path / "results/short/metrics.parquet")
    values = dict(
        metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null(), setting="statement")
        .select("metric", "value")
        .iter_rows()
    )
    assert 0 < values["accuracy"] < values["mrr"] < 1
    assert "accuracy of a" in card


@pytest.mark.slow
def test_data_set_of_rows_is_read_and_described(tmp_path: Path) -> None:
    outcome = follow("A data set", tmp_path, ROOT)
    yaml_files = [f"factsweep.d/{folder}/twins.yaml" for folder in ("data_catalog", "benchmark")]
    assert (outcome.new, outcome.changed) == (["own.py", *yaml_files], [])
    _, facts_report, _, verified, described, by_name = outcome.printed
    assert "prompts         6 (P190 6)" in facts_report
    assert "prompts         6 (P190 6)" in by_name
    assert verified == "twins: as the catalog says\n"
    assert "twinned administrative body" in described


@pytest.mark.slow
def test_data_set_of_another_format_is_read_and_described(tree: Path) -> None:
    tests, verified, described = followed("Another format", tree, "[in another format]").printed
    assert "3 passed" in tests
    assert verified == "capitals: as the catalog says\n"
    assert "P36" in described


@pytest.mark.slow
def test_metric_is_on_the_card_in_the_headline_and_in_the_glossary(tree: Path) -> None:
    tests, documented = followed("A metric", tree, "[a metric]").printed
    assert "3 passed" in tests
    assert "passed" in documented
    assert run(f"python -c '{SHOW}'", tree, tree).splitlines() == [
        "length 3.50 (0–7.00)",
        ".5000 3.50 .5000",
        "mean number of characters of an answer",
        "False",
    ]


@pytest.mark.slow
def test_benchmark_runs_from_facts_to_tables(tree: Path) -> None:
    follow("Another format", tree, tree)
    followed("A benchmark", tree, "[a benchmark]")
    (path,) = tree.glob("results/*/metrics.parquet")
    metrics = pl.read_parquet(path).filter(metric="right")
    assert metrics.select("setting", "slice", "n", "n_failed").rows() == [
        ("plain", None, 2, 0),
        ("plain", "relation=P36", 2, 0),
    ]
    assert (path.parent / "index.html").is_file()


@pytest.mark.slow
def test_engine_answers_a_run(tree: Path) -> None:
    followed("An engine", tree, "[an engine]")
    (path,) = tree.glob("results/*/metrics.parquet")
    metrics = pl.read_parquet(path).filter(metric="one_word_ratio")
    assert set(metrics["value"]) == {1.0}
