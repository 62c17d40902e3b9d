"""The pages of docs/: what `make docs` refuses is refused here, too, before anything is built."""

import runpy
from pathlib import Path

import pytest

from factsweep.pipeline.config import folders

SITE = Path(__file__).parents[1] / "docs" / "site"


@pytest.mark.slow
def test_links_lead_somewhere_and_code_blocks_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SITE)
    monkeypatch.setenv(folders.VARIABLE, "")  # which reading a page sets
    build = runpy.run_path(str(SITE / "build.py"))
    assert list(build["wrong"](build["written"]())) == []
    harmed = {"README.md": "[a](none.md)\n\n```bash\nfactsweep run model=nope\n```\n"}
    found = list(build["wrong"](harmed))
    assert any("nope" in each for each in found), found
    assert any("none.md" in each for each in found), found
