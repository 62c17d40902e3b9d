"""nightly with a budget: a part of the prompts, judged with the accepted baseline as control."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Completion, Request
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.results import report
from factsweep.pipeline.runs import estimate as estimating
from factsweep.pipeline.stages.plan import planned
from factsweep.pipeline.studies import asking
from tests.messages import naming
from tests.pipeline.here import labelled_prompts, make_here

Night = Callable[..., tuple[int, str]]


class Knowing(FakeEngine):
    """Says what it knows of a prompt, and counts how often it is asked."""

    def __init__(self, knows: Mapping[str, str]) -> None:
        super().__init__()
        self.knows, self.n_asked = knows, 0

    def _complete(self, request: Request, index: int) -> Completion:
        self.n_asked += 1
        return Completion(self.knows.get(request.request_id, "no idea"), 1, -1.0, "stop")


@pytest.fixture
def engine(small_settings: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> Knowing:
    """The engine of all nights of a test, which knows most; they are run in this process."""
    prompts = labelled_prompts(small_settings())
    prompts = prompts.gather_every(3).vstack(prompts.gather_every(3, offset=1))
    engine = Knowing(dict(prompts.select("prompt_id", "label").iter_rows()))

    def whole(run: Run) -> pl.DataFrame:
        plan = planned(run)
        make_here(plan, engine)
        return report.write(plan, {"total": 0})

    monkeypatch.setattr(asking, "compute", whole)
    monkeypatch.setattr(estimating, "compute", lambda plan: make_here(plan, engine))
    return engine


@pytest.fixture
def given(small: list[str], nightly_file: Callable[..., str]) -> str:
    """The file of a nightly that asks half of the prompts of the small run."""
    greedy = ["decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "budget=50%"]
    comparison = {"smallest_difference": 0.1, "min_facts": 13}
    return nightly_file("half", [[*small, *greedy]], fresh=False, comparison=comparison)


@pytest.fixture
def said(given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Night:
    """Runs a verb with its words; returns the exit code and what was said."""
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]

    def said(verb: str, *words: str) -> tuple[int, str]:
        code = main([*shlex.split(verb), given, *words, *folders])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return said


@pytest.mark.slow
def test_nightly_of_a_part_is_judged_with_the_baseline_as_its_control(
    said: Night, engine: Knowing, tmp_path: Path
) -> None:
    code, text = said("nightly", "--date", "2026-11-01")
    assert code == 4
    assert re.search(r"estimate from .*: no baseline of .* accepted yet; a full run makes", text)
    code, text = said("baseline accept", "half-2026-11-01")
    assert code == 2
    assert re.search(naming("baseline", "budget=null"), text)

    engine.n_asked = 0
    assert said("nightly", "budget=null", "--date", "2026-11-02")[0] == 4
    n_full, engine.n_asked = engine.n_asked, 0
    assert said("baseline accept", "half-2026-11-02")[0] == 0
    code, text = said("nightly", "--date", "2026-11-02")
    assert code == 2
    assert re.search(naming("half-2026-11-02/", "answers to all prompts", "--date"), text)
    code, text = said("nightly", "--date", "2026-11-03")
    assert code == 0
    assert engine.n_asked <= n_full / 2
    assert re.search(r"\(estimate from [45].*% of the prompts\): no change: acc_at_1 of", text)
    estimates = pl.read_parquet(next(tmp_path.glob("results/half-2026-11-03/*/estimates.parquet")))
    assert [each[:8] for each in set(estimates["control"])] == ["matched/"]

    engine.knows = {}
    code, text = said("nightly", "--date", "2026-11-04")
    assert code == 3
    verdict = json.loads((tmp_path / "results/half-2026-11-04/verdict.json").read_text())
    (setting,) = verdict["settings"]
    assert (setting["outcome"], verdict["exit_code"]) == ("regression", 3)
    assert setting["estimate"] in text
    assert (
        f"({setting['estimate']})" in (Path(setting["tables"]) / "tables/headline.md").read_text()
    )

    code, text = said("nightly", "seed=1", "--date", "2026-11-05")
    assert code == 4
    assert re.search(naming("baseline", "prompts seed"), text)
