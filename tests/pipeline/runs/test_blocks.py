"""A run with a budget: its blocks are answered one after the other."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.asked import sampled
from factsweep.pipeline.decoding.queue import Queue
from factsweep.pipeline.runs import estimate as estimating
from factsweep.pipeline.stages.plan import planned

Settings = Callable[..., Run]

FEW = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "budget=100%")


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
@pytest.mark.usefixtures("shared_ray")
def test_estimate_with_engines_asks_all_blocks_and_ends_with_its_page(
    small_settings: Settings,
) -> None:
    run = small_settings(*FEW[:2], "budget=50%")
    found = estimating.estimate(run)
    assert found.estimates["share"][0] == 0.5
    folder = Path(run.results) / run.name
    assert (folder / "estimates.html").exists()
    assert "index.html" not in {path.name for path in folder.iterdir()}
