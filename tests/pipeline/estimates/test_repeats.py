"""Runs beside an estimate: what demonstrations and decoding do, from real stages."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Completion
from factsweep.operators.errors import InputError
from factsweep.operators.estimates import repeats
from factsweep.operators.seeds import key
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.estimates import estimate, written
from factsweep.pipeline.estimates.control import others
from factsweep.pipeline.execution.plan import planned
from factsweep.pipeline.run import measured
from factsweep.pipeline.stages import facts
from tests.pipeline.here import make_here

GREEDY = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
CANARY = ("decoding.samples.n_prompts=0",)


class Wavering(FakeEngine):
    """Says a word, which may be right, by the text and by how often it was asked that."""

    def __init__(self) -> None:
        super().__init__()
        self._n_asked = Counter[str]()

    def answers(self, requests: Iterable[Any]) -> Iterator[Answer]:
        for request in requests:
            self._n_asked[request.text] += 1
            text = ("Europe", "Asia", "Paris")[key(request.text, self._n_asked[request.text]) % 3]
            yield Answer(request.request_id, (Completion(text, 1, None, "stop"),), 1, 0)


@dataclass(frozen=True)
class Place:
    """Where the runs of this module are, by one engine; a part of them is there already."""

    folder: Path
    small: Sequence[str]
    engine: Wavering

    def settings(self, *given: str) -> Run:
        where = (f"{name}={self.folder}/{name}" for name in ("artifacts", "results"))
        few = ("cluster.rows_per_shard=99", "cluster.rows_per_chunk=99")
        return load([*self.small, *where, *few, *given])

    def matched(self, *given: str) -> pl.DataFrame:
        """The matched answers to all prompts, which are asked unless they were."""
        plan = planned(self.settings(*given))
        make_here(plan, self.engine)
        return plan.branches[0].matched.read_all("answers")

    def variance(self, *given: str) -> dict[str, dict[str, Any]]:
        """The rows of an estimate's table of variance, by source."""
        found = estimate.estimate(self.settings(*given)).variance
        return {row["source"]: row for row in found.iter_rows(named=True)}


@pytest.fixture(scope="module")
def place(
    small: list[str], plain: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    engine = Wavering()
    found = Place(tmp_path_factory.mktemp("beside"), small, engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "compute", lambda plan: make_here(plan, engine))
        yield found


def half_square(first: pl.DataFrame, second: pl.DataFrame) -> float:
    """Half the mean over facts of the mean squared difference."""
    both = first.join(second, on="prompt_id")
    change = (pl.col("correct") != pl.col("correct_right")).mean()
    return float(str(both.group_by("pair_id").agg(change)["correct"].mean())) / 2


@pytest.fixture(scope="module")
def first(place: Place) -> pl.DataFrame:
    """The matched answers of the run `first`, which has estimated from all prompts."""
    place.variance(*GREEDY, "budget=100%", "run_name=first")
    return place.matched(*GREEDY)


def test_demonstrations_of_two_seeds_are_half_the_squared_difference(
    place: Place, first: pl.DataFrame
) -> None:
    given = (*GREEDY, "seed=1")
    found = place.variance(*given, "budget=100%", "run_name=second", "beside=[first]")
    made = half_square(first, place.matched(*given))
    assert 0 < made < 0.5
    assert found["demonstrations"]["variance"] == pytest.approx(made)
    assert found["demonstrations"]["why"] is None
    assert "the rest and of demonstrations" in found["decoding"]["why"]
    for name in ("estimates.md", "estimates.html"):
        text = (place.folder / "results" / "second" / name).read_text()
        assert "decoding: no prompt was answered twice" in text


def test_estimates_of_two_seeds_ask_the_same_prompts_by_the_seed_of_the_sample(
    place: Place,
) -> None:
    given = (*GREEDY, "budget=80%")
    place.variance(*given, "run_name=zero")
    more = ("seed=1", "run_name=same", "sample_seed=0", "beside=[zero]")
    found = place.variance(*given, *more)
    assert chosen(place, "zero") == chosen(place, "same")
    assert found["demonstrations"]["variance"] is not None


def chosen(place: Place, name: str) -> set[str]:
    (branch,) = written.read(f"{place.folder}/results", name).branches.values()
    return set(branch.artifacts["chosen"].read_all("chosen")["prompt_id"])


def test_decoding_is_told_by_a_repetition(place: Place, first: pl.DataFrame) -> None:
    given = (*GREEDY, "decoding.repetition=second", "decoding.repeats=all")
    found = place.variance(*given, "budget=100%", "run_name=repeated", "beside=[first]")
    expected = half_square(first, place.matched(*given))
    assert found["decoding"]["variance"] == pytest.approx(expected)
    assert found["decoding"]["why"] is None
    assert found["demonstrations"]["variance"] is None


def test_decoding_is_told_by_another_seed_where_there_are_no_demonstrations(place: Place) -> None:
    given = (*GREEDY, "prompt=zero-shot", "budget=100%")
    place.variance(*given, "run_name=bare")
    found = place.variance(*given, "seed=1", "run_name=other", "beside=[bare]")
    assert found["decoding"]["variance"] > 0
    assert found["demonstrations"]["why"] == "the prompts have none"


def test_decoding_is_told_by_the_canary_of_the_full_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "LEAST", 5)
    given = (*CANARY, "seed=3", "budget=60%", "run_name=part")
    whole = place.settings(*CANARY, "seed=3", "run_name=canary")
    measured(whole, lambda plan: make_here(plan, place.engine))
    (branch,) = planned(whole).branches
    assert branch.again is not None
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").explode())
    right = facts.load(branch.facts).pairs.select("pair_id", labels=labels)
    second = branch.again.read_all("canary").join(
        branch.matched.read_all("answers").select("prompt_id", "pair_id", before="correct"),
        on="prompt_id",
    )
    now = second.join(right.cast({"pair_id": second["pair_id"].dtype}), on="pair_id")
    changed = now.select(pl.col("labels").list.contains(pl.col("text")) != pl.col("before"))
    told = place.variance(*given)["decoding"]
    assert told["variance"] == pytest.approx(changed.to_series().mean() / 2)  # type: ignore[operator]
    assert told["variance"] > 0
    assert told["why"] is None
    beside = place.variance(*CANARY, "budget=60%", "run_name=o", "seed=4", "beside=[canary]")
    assert beside["decoding"]["variance"] == told["variance"]
    assert beside["demonstrations"]["variance"] is not None


REFUSED = {
    "beside=[none]": "has no run none",
    "beside=[first:zero-shot]": "first has no setting zero-shot",
    "prompt.templates=manual": "differs in more than seed and prompt.scope",
    "model.max_model_len=900": "differs in more than seed and prompt.scope",
    "decoding.max_tokens=9": "differs in more than seed and prompt.scope",
    "seed=0": "its answers are those of this run",
    "budget=null": "is for an estimate; give budget= too",
    "benchmark=kamel-mini": "do not split it; leave it out",
}


@pytest.mark.parametrize("given", REFUSED)
def test_run_that_is_no_repeat_is_refused(place: Place, first: pl.DataFrame, given: str) -> None:
    more = ["seed=1", "budget=30%", "run_name=other", "beside=[first]", given]
    if given.startswith("benchmark"):
        more += ["prompt=1-shot", "benchmark.path=null"]
    with pytest.raises(InputError, match=REFUSED[given]):
        others(planned(place.settings(*GREEDY, *more)))
