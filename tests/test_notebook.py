"""The notebook of docs/ runs, and its outputs are what a run gives."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from factsweep.pipeline.config import folders
from tests.notebook import Cell, Output, outputs

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs/notebook.ipynb"
NUMBER = re.compile(r"-?\d*\.\d+")
# Of an answer or two: another processor rounds otherwise.
TOLERANCE = 0.05


def cells() -> list[Cell]:
    new_output: list[Cell] = json.loads(NOTEBOOK.read_text())["cells"]
    return new_output


def code() -> list[Cell]:
    return [output for output in cells() if output["cell_type"] == "code"]


def texts(outputs: list[Output]) -> str:
    """All that is text; the rule of a table is as wide as its numbers."""
    parts = [output.get("text") or output["data"]["text/plain"] for output in outputs]
    text = "".join(line for part in parts for line in part)
    return re.sub(r"[ ─-]{2,}", " ", text)


def test_notebook_has_outputs_that_are_small_and_of_its_last_run() -> None:
    assert all(output["outputs"] for output in code())
    assert [output["execution_count"] for output in code()] == list(range(1, len(code()) + 1))
    assert NOTEBOOK.stat().st_size < 100_000
    assert "/work/" not in NOTEBOOK.read_text()
    assert "/tmp/" not in NOTEBOOK.read_text()
    images = [output for cell in code() for output in cell["outputs"] if "image/png" in str(output)]
    assert len(images) == 1


def test_outputs_are_what_cells_print_and_what_they_end_with() -> None:
    source: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["text"]},
        {"cell_type": "code", "source": ["x = 1\n", "print(x)\n", "x + 1"]},
        {"cell_type": "code", "source": ["y = x"]},
    ]
    (first, second) = outputs(source)
    assert texts(first) == "1\n2"
    assert second == []


@pytest.mark.chaos  # its run is that of test_end_to_end.py, and its calls are in test_api.py
@pytest.mark.engine
@pytest.mark.timeout(900)
def test_notebook_gives_the_outputs_that_it_shows(tmp_path: Path) -> None:
    marks = ("RAY_", "VLLM_", folders.VARIABLE)  # of this process
    environment = {name: value for name, value in os.environ.items() if not name.startswith(marks)}
    process = subprocess.run(
        [sys.executable, "-m", "tests.notebook", str(NOTEBOOK)],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    new_outputs = json.loads(process.stdout.splitlines()[-1])
    for cell, new_output in zip(code(), new_outputs, strict=True):
        old_text, tags = texts(cell["outputs"]), cell["metadata"].get("tags", [])
        if "varies" in tags:  # times, and what was measured on this machine before
            assert new_output
        elif "measured" in tags:
            assert NUMBER.sub("#", texts(new_output)) == NUMBER.sub("#", old_text)
            number_pairs = zip(
                NUMBER.findall(texts(new_output)), NUMBER.findall(old_text), strict=True
            )
            for new, old in number_pairs:
                assert math.isclose(float(new), float(old), abs_tol=TOLERANCE), cell["source"]
        else:
            assert texts(new_output) == old_text
