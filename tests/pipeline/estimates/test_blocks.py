"""A run with a budget while it goes on: numbers, tables and page after every block of it."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.estimates.choosing.choice import budgets
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.estimates import estimate as estimating
from factsweep.pipeline.estimates import written
from factsweep.pipeline.estimates.blocks import Blocks
from factsweep.pipeline.execution.asked import sampled
from factsweep.pipeline.execution.plan import Plan, planned
from factsweep.pipeline.execution.queue import Queue
from factsweep.pipeline.live import page, pulse
from factsweep.pipeline.live.page import LivePage
from factsweep.pipeline.machine import meter as meters
from factsweep.pipeline.machine.meter import Meter
from factsweep.pipeline.reports import watch
from tests.pipeline.here import make_here

Settings = Callable[..., Run]

FEW = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "budget=100%")
CUT = (*FEW, "cluster.rows_per_chunk=1")
N_PROMPTS = 72


@pytest.fixture(scope="module")
def begun_once(small: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The artifacts of a budget whose engine dies after so many answers."""

    @cache
    def begin(n_answers: int) -> Path:
        folder = tmp_path_factory.mktemp("begun") / "artifacts"
        left = [n_answers]

        def die(_: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError

        plan = sampled(planned(load([*small, *CUT, f"artifacts={folder}"])))
        with pytest.raises(RuntimeError):
            make_here(plan, FakeEngine(witness=die))
        return folder

    return begin


@pytest.fixture
def begun(
    begun_once: Callable[[int], Path], small_settings: Settings, tmp_path: Path
) -> Callable[[int], Plan]:
    """The plan of such a budget, in a copy."""

    def begun(n_answers: int) -> Plan:
        shutil.copytree(begun_once(n_answers), tmp_path / "artifacts")
        return sampled(planned(small_settings(*CUT)))

    return begun


def test_blocks_of_a_budget_are_handed_out_one_after_the_other(small_settings: Settings) -> None:
    plan = sampled(planned(small_settings(*FEW)))
    for step in plan.branches[0].steps:
        if step.stage is not None:
            step.run()
    tally = SimpleNamespace(announce=SimpleNamespace(remote=lambda *_: None))
    order = [shard["work"].block for shard in Queue(plan, tally, {}, []).first()]
    assert order == sorted(order, key=lambda block: block or 0)
    assert set(order) == {0, 1, 2, 3}


@pytest.mark.slow
@pytest.mark.parametrize(("n_answers", "block", "n_asked"), [(20, 1, 18), (40, 2, 34)])
def test_blocks_that_are_answered_are_the_estimate_of_a_smaller_budget(
    begun: Callable[[int], Plan],
    small_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    n_answers: int,
    block: int,
    n_asked: int,
) -> None:
    found = Blocks(begun(n_answers)).so_far()
    budget = budgets(N_PROMPTS)[block]
    assert found.notes == (f"4-template: the first {n_asked} of 70 prompts of the budget.",)
    assert found.page is not None
    assert f"Estimates from {100 * budget / N_PROMPTS:.2f}% of the prompts" in found.page
    monkeypatch.setattr(estimating, "compute", lambda plan, _measures: make_here(plan))
    alone = estimating.estimate(small_settings(*FEW[:2], f"budget={budget}", "run_name=alone"))
    rows = pl.read_parquet(found.files["estimates.parquet"])
    assert_frame_equal(rows, alone.estimates)


def test_blocks_before_the_first_is_answered_are_nothing(begun: Callable[[int], Plan]) -> None:
    found = Blocks(begun(3)).so_far()
    assert found.page is None
    assert found.notes == ("4-template: no block of the budget is answered yet.",)
    assert not found.files


@pytest.mark.slow
def test_page_of_a_budget_that_goes_on_is_marked_and_leads_to_its_estimates(
    begun: Callable[[int], Plan],
) -> None:
    plan = begun(20)
    live, run = LivePage(plan, Blocks), plan.run
    live._take(Blocks(plan).so_far())
    assert [text.partition(" ≈ ")[0] for text in live.news()] == ["4-template: Acc@1"]
    assert list(live.news()) == []
    live.close({"all_shards": 24.0, "shards": 9.0, "all_answers": 70.0, "answers": 20.0})
    folder = Path(run.results) / run.name
    text = (folder / page.NAME).read_text()
    assert "9 of 24 parts are answered, 50 answers left." in text
    assert "25.00% of the prompts" in text
    assert written.read(run.results, run.name).found.estimates["share"][0] == 0.25
    page.ended(run, "done", None)
    assert "estimates.html" in (folder / page.NAME).read_text()


@pytest.mark.slow
def test_watch_shows_the_main_number_as_it_narrows(
    begun: Callable[[int], Plan],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(meters, "PLAIN_EVERY_S", 0.0)
    plan = begun(20)
    run = plan.run

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float, /) -> None:
            self.now += seconds
            if self.now < 3:
                LivePage(plan, Blocks)._take(Blocks(plan).so_far())
            elif self.now < 5:
                make_here(plan)
                LivePage(plan, Blocks)._take(Blocks(plan).so_far())
            else:
                pulse.write(run, "done")

    pulse.write(run, "running", {})
    with Meter(run.name) as meter:
        assert watch.watch(run, meter, Clock()) == 0
    said = capsys.readouterr().err
    shares = ["from 25.00% of the prompts", "from 100.00% of the prompts", "done; results in"]
    places = [said.find(each) for each in shares]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_estimate_with_engines_asks_all_blocks_and_ends_with_its_page(
    small_settings: Settings,
) -> None:
    run = small_settings(*FEW[:2], "budget=50%")
    found = estimating.estimate(run)
    assert found.estimates["share"][0] == 0.5
    folder = Path(run.results) / run.name
    assert "estimates.html" in (folder / page.NAME).read_text()
    assert "index.html" not in {path.name for path in folder.iterdir()}
