"""The pages of docs/: what `make docs` refuses is refused here, too, before anything is built."""

import runpy
from pathlib import Path

import pytest

from factsweep.operators.methods import METHODS
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.schemas import SCHEMAS
from factsweep.pipeline.config import folders

SITE = Path(__file__).parents[1] / "docs" / "site"


@pytest.mark.slow
def test_links_lead_somewhere_and_code_blocks_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SITE)
    monkeypatch.setenv(folders.VARIABLE, "")  # which reading a page sets
    build = runpy.run_path(str(SITE / "build.py"))
    assert list(build["wrong"](build["written"]())) == []
    block = "```bash\nfactsweep run model=nope\n```"
    harmed = {"README.md": f"[a](none.md)\n\n{block}\n\n<!-- made: columns no -->\n"}
    faults = list(build["wrong"](harmed))
    assert any("nope" in fault for fault in faults), faults
    assert any("none.md" in fault for fault in faults), faults
    assert any("columns no" in fault for fault in faults), faults


def test_tables_of_a_page_have_every_column_and_every_metric_with_a_heading() -> None:
    filled = runpy.run_path(str(SITE / "made.py"))["filled"]
    columns = filled("<!-- made: columns metrics -->")
    assert [name for name in SCHEMAS["metrics"].names if f"`{name}`" not in columns] == []
    assert "| `ci_low`, `ci_high` | a 95 % interval; null where there is none |" in columns
    glossary = filled("<!-- made: glossary -->")
    for method in METHODS.values():
        for name, heading in headings(method.measure.metrics).items():
            assert f"| `{name}` | {heading} | " in glossary


def test_link_to_a_module_alone_becomes_its_docstrings_without_examples() -> None:
    filled = runpy.run_path(str(SITE / "made.py"))["filled"]
    link = "[operators/metrics/data_set.py](../operators/metrics/data_set.py)"
    page = filled(f"{link}\n\nsee {link}\n")
    assert "### operators/metrics/data_set.py\n\nHow many and how different" in page
    assert "**`lexicon`**\n\nAverage over all pairs" in page
    assert ">>>" not in page
    assert page.endswith(f"see {link}\n")
