"""docs/adding.md, "A metric": followed to the letter, in a copy of the tree."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COPIED = (
    "operators",
    "pyproject.toml",
    "docs/metrics.md",
    "tests/operators/metrics/conftest.py",
)
MODULE = "operators/metrics/belief/empty_ratio.py"
LIST = "operators/metrics/belief/belief.py"
DOCS = "docs/metrics.md"
TEST = "tests/operators/metrics/belief/test_empty_ratio.py"

SHOW = """
import polars as pl
from operators.methods import METHODS
from operators.metrics.belief.belief import belief
from operators.metrics.estimates.metric import higher_is_better
from operators.pages.glossary import terms_of
from operators.tables.belief.belief import headline
answers = pl.DataFrame({
    "relation_id": ["P1"] * 2, "pair_id": ["t1", "t2"], "template_id": ["a"] * 2,
    "key": ["\\x1fguitar\\x1f", None], "n_lemmas": [1, 0], "correct": [True, False],
})
failed = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})
rows = belief(answers, None, failed, seed=1, n_draws=10, n_rounds=10)
run = {"model": "m", "benchmark": "b", "setting": "zero-shot"}
metrics = rows.with_columns(pl.lit(text).alias(name) for name, text in run.items())
method = METHODS["belief"]
print(*method.show.card(metrics).filter(metric="empty").row(0))
print(*headline(metrics).select("one-word", "empty", "oracle").row(0))
print(terms_of(["empty"], method.measure.metrics)["empty"].meaning)
print(higher_is_better(method.measure.metrics)["empty_ratio"])
"""


def tree(folder: Path) -> dict[str, bytes]:
    """The content of every file that is not a cache."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in found
        if not {"__pycache__", ".hypothesis"} & set(path.parts)
    }


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name in COPIED:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    before = tree(folder)
    _follow(folder)
    after = tree(folder)
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {MODULE, LIST, DOCS, TEST}
    return folder


def _follow(folder: Path) -> None:
    """What the recipe says, with the code that it prints."""
    recipe = (ROOT / "docs" / "adding.md").read_text().split("## A metric\n")[1].split("\n## ")[0]
    module, law = re.findall(r"```python\n(.*?)```", recipe, re.DOTALL)
    (line,) = re.findall(r"^ +(from \S+ import EMPTY_RATIO)$", recipe, re.MULTILINE)
    (folder / MODULE).write_text(module)
    (folder / TEST).parent.mkdir(parents=True)
    (folder / TEST).write_text(law)
    listed = (folder / LIST).read_text()
    listed = listed.replace("\nfrom operators", f"\n{line}\nfrom operators", 1)
    listed = listed.replace("    ONE_WORD_RATIO,\n", "    ONE_WORD_RATIO,\n    EMPTY_RATIO,\n", 1)
    (folder / LIST).write_text(listed)
    with (folder / DOCS).open("a") as docs:
        docs.write("### `empty_ratio`\n")


def _run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_metric_is_on_the_card_in_the_headline_and_in_the_glossary(copied: Path) -> None:
    assert _run(copied, "-c", SHOW).splitlines() == [
        "empty .5000 (.0000–.8875)",
        ".5000 .5000 .5000",
        "share of answers without any word",
        "False",
    ]


def test_a_new_metrics_example_and_law_hold(copied: Path) -> None:
    arguments = ("-q", "-p", "no:cacheprovider", "-o", "timeout=0", "-W", "default")
    found = _run(copied, "-m", "pytest", *arguments, MODULE, TEST)
    assert "passed" in found
