"""What is measured of a run that is not done: whole relations, marked, as in the finished run."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from transformers import PreTrainedTokenizerFast

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.execution.plan import Plan, planned
from factsweep.pipeline.live import measuring
from factsweep.pipeline.live.measuring import Measuring
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.storage.artifact import Artifact
from tests.pipeline.here import make_here

Settings = Callable[..., Run]


def undone(artifact: Artifact, table: str = "", shards: str = "") -> None:
    """Take an artifact back to where some of its shards, and its manifest, were not published."""
    folder = Path(artifact.store.root) / artifact.folder
    (folder / "manifest.json").unlink()
    for path in folder.glob(f"{table}/{shards}*") if table else ():
        path.unlink()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[PastBranch]]:
    """The settings of each page that is made, as they stand on it."""
    found: list[list[PastBranch]] = []
    make = measuring.results_page

    def page(branches: list[PastBranch], *rest: object, **options: object) -> bytes:
        found.append(list(branches))
        return make(branches, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "results_page", page)
    return found


def half_done(plan: Plan) -> Plan:
    """The plan when one relation lacks a shard of answers."""
    (branch,) = plan.branches
    undone(branch.metrics)
    undone(branch.matched)
    undone(branch.answers, "generations", "P36.0001")
    return planned(plan.run)


def test_relation_that_is_whole_has_the_numbers_of_the_finished_run(
    finished: Plan, measured: list[list[PastBranch]]
) -> None:
    whole = finished.branches[0].metrics.read_all("metrics").filter(slice="relation=P30")
    found = Measuring(half_done(finished)).so_far()
    assert found.notes == ("4-template: 1 of 2 relations.",)
    metrics = measured[0][0].metrics.read_all("metrics")
    of_relation = metrics.filter(slice="relation=P30").drop("variant")
    assert of_relation.equals(whole.drop("variant"))
    everything = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")
    assert everything["variant"].to_list() == ["relations=1/2"]
    value = of_relation.filter(metric="acc_at_1")["value"].item()
    assert everything["value"].item() == pytest.approx(value)
    assert "4-template relations=1/2" in (found.page or "")
    assert "1 relation, 6 facts" in (found.page or "")


def test_run_all_of_whose_answers_are_there_has_its_numbers_unmarked(
    finished: Plan, measured: list[list[PastBranch]]
) -> None:
    whole = finished.branches[0].metrics.read_all("metrics")
    undone(finished.branches[0].metrics)
    found = Measuring(planned(finished.run)).so_far()
    assert found.notes == ("4-template: 2 of 2 relations.",)
    assert measured[0][0].metrics.read_all("metrics").equals(whole)


def test_what_is_not_there_for_all_relations_is_named_and_left_out(
    finished: Plan, measured: list[list[PastBranch]]
) -> None:
    (branch,) = finished.branches
    undone(branch.further[0], "samples", "P30")
    found = Measuring(planned(finished.run)).so_far()
    assert found.notes == ("4-template: 2 of 2 relations, without samples.",)
    metrics = measured[0][0].metrics.read_all("metrics")
    assert metrics.filter(metric="ece").is_empty()
    assert metrics.filter(metric="flip_rate").height
    assert metrics.filter(metric="acc_at_1")["n_failed"].sum() == 0


def test_shard_that_is_not_settled_is_not_measured(finished: Plan) -> None:
    (branch,) = finished.branches
    undone(branch.answers)
    trial = f"{branch.answers.folder}/trials/generations/P36.0000.json"
    branch.answers.store.put(trial, b"{}")
    assert Measuring(planned(finished.run)).so_far().notes == ("4-template: 1 of 2 relations.",)


def test_run_that_has_no_answers_has_no_page(small_settings: Settings) -> None:
    plan = planned(small_settings())
    found = Measuring(plan).so_far()
    assert found == measuring.SoFar(None, ("4-template: its prompts are not written yet.",))
    for step in plan.steps:
        if step.question is None and step.artifact.stage in ("facts", "prompts", "admitted"):
            assert step.stage is not None
            step.stage.make(step.artifact)
    found = Measuring(plan).so_far()
    assert found == measuring.SoFar(None, ("4-template: 0 of 2 relations.",))


def test_nothing_is_measured_again_where_nothing_was_added(
    finished: Plan, measured: list[list[PastBranch]]
) -> None:
    half = Measuring(half_done(finished))
    assert half.so_far() is half.so_far()
    assert len(measured) == 1


@pytest.mark.slow
def test_settings_of_other_relations_are_not_compared(
    small_settings: Settings, measured: list[list[PastBranch]]
) -> None:
    greedy = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
    prompts = "sweep.prompts=[zero-shot,4-relation,4-template]"
    plan = planned(small_settings(prompts, *greedy))
    make_here(plan)
    undone(plan.branches[1].metrics)
    undone(plan.branches[1].answers, "generations", "P36.0001")
    undone(plan.branches[1].matched)
    found = Measuring(planned(plan.run)).so_far()
    assert [each.setting for each in measured[0]] == [
        "zero-shot",
        "4-relation relations=1/2",
        "4-template",
    ]
    assert found.page is not None
    compared = found.page.partition('id="comparisons"')[2].partition("</section>")[0]
    assert "4-template" in compared
    assert "4-relation" not in compared


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "prompt"),
    [("kamel-mini", "1-shot"), ("probelm-mini", "plausibility"), ("distractors-mini", "random")],
)
def test_every_method_has_a_page_of_whole_relations(
    benchmark: str, prompt: str, small: list[str], make_model: Callable[[str], Path], tmp_path: Path
) -> None:
    model = make_model(benchmark)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    tokenizer.eos_token = "</s>"  # an ending of a name
    tokenizer.save_pretrained(model)
    left_out = ("benchmark.path", "decoding.samples", "metrics", "model.id")
    plan = planned(
        load(
            [
                *(each for each in small if not each.startswith(left_out)),
                *(f"benchmark={benchmark}", f"prompt={prompt}", f"model.id={model}"),
                "benchmark.pairs_per_relation=5",
                "metrics.n_rounds=20",
                f"artifacts={tmp_path}/artifacts",
            ]
        )
    )
    make_here(plan)
    (branch,) = plan.branches
    table = branch.answers.stage
    shards = branch.answers.shards(table)
    relations = {relation_of(shard) for shard in shards}
    undone(branch.metrics)
    undone(branch.matched)
    undone(branch.answers, table, shards[0])
    found = Measuring(planned(plan.run)).so_far()
    n = f"{len(relations) - 1} of {len(relations)} relations"
    assert found.notes[0].startswith(f"{branch.title}: {n}")
    assert f"relations={len(relations) - 1}/{len(relations)}" in (found.page or "")
