"""Kinds of confidence, from stored answers to the tables of a run."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice
from math import exp, log
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Completion, Request, Scored, ScoreRequest
from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models
from factsweep.pipeline.results import report
from factsweep.pipeline.stages.plan import Plan

Compute = Callable[..., Plan]
# The greedy answer, samples in turn, and the greedy answer's log-probability, by prompt in turn.
PLANTED = (
    (" Europe", (" Europe", " in Europe", " Asia", " Asia"), -0.25),
    (" Asia", (" Asia", " Asia", " Asia", ""), -0.5),
    (" Paris", (" Rome", " Oslo", " Lima", " Ghana"), -2.0),
)
MOST_TOKENS = 16  # of a number
# Of the same prompts, log p of the two words behind the question, and the number given.
TRUTHS = ((-0.5, -1.5), (-1.0, -1.0), (-3.0, -0.1))
REPLIES = (" 90%\nQ:", " not sure", " 20 out of 100")
ASK = "decoding.confidence.ask=[p_true,verbalised]"


class PlantedEngine(FakeEngine):
    """Gives each prompt the answers of `PLANTED`, by the last figure of its place in the run."""

    def __init__(self, planted: Callable[[str], int]) -> None:
        super().__init__()
        self._planted = planted
        self.asked_words: list[tuple[int, ...]] = []

    def _complete(self, request: Request, index: int) -> Completion:
        state = self._planted(request.request_id)
        if request.sampling.max_tokens == MOST_TOKENS:
            return Completion(REPLIES[state], 2, None, "length")
        greedy, samples, logprob = PLANTED[state]
        is_greedy = request.sampling.temperature == 0
        text = greedy if is_greedy else next(islice(cycle(samples), index, None))
        return Completion(text, 2, logprob if request.sampling.logprobs else None, "stop")

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """The planted log-probability of each word behind a question."""
        for request in requests:
            name, _, place = request.request_id.rpartition("\x1f")
            start, end = request.span
            self.asked_words.append(tuple(request.token_ids[start:end]))
            logprob = TRUTHS[self._planted(name)][int(place)]
            logprobs = [0.0] * (len(request.token_ids) - 1)
            logprobs[end - 2] = logprob
            yield Scored.of(request, logprobs, n_cached_tokens=0)


def state_of(prompt_id: str) -> int:
    """The planted state of a prompt, by its pair: the same in every call."""
    return sum(map(ord, prompt_id.rsplit(".", 2)[0])) % len(PLANTED)


@pytest.fixture
def planted_run(small: list[str], tmp_path: Path, compute_here: Compute) -> Callable[..., Plan]:
    """A small run of planted answers: 4 samples of each pair."""

    def compute(*overrides: str) -> Plan:
        sizes = ["decoding.samples.n_answers=4", "decoding.samples.block_size=4"]
        folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
        run: Run = load([*small, *sizes, *folders, *overrides])
        return compute_here(run, PlantedEngine(state_of))

    return compute


def share(rows: pl.DataFrame, column: str) -> float:
    """The share of rows for which a column is true."""
    return float(rows[column].sum()) / rows.height


def overall(plan: Plan, metric: str) -> dict[str | None, float]:
    """A metric over everything, by variant."""
    metrics = plan.branches[0].metrics.read_all("metrics")
    rows = metrics.filter(pl.col("slice").is_null(), metric=metric)
    return dict(rows.select("variant", "value").iter_rows())


def test_confidence_planted_answers_give_the_planted_numbers(
    planted_run: Callable[..., Plan],
) -> None:
    plan = planted_run()
    (branch,) = plan.branches
    calibration = branch.matched.read_all("calibration")
    n = Counter(map(state_of, calibration["prompt_id"]))
    assert n.total() == calibration.height
    assert len(n) == len(PLANTED)
    agreeing = (0.5, 0.75, 0)  # "in Europe" matches "Europe"
    # Clusters of 1, 1, 2 samples, or with matching ones as one 2, 2; of 3, 1; and of 1, 1, 1, 1.
    entropy = {
        "equal": (1.5 * log(2), log(4) - 0.75 * log(3), log(4)),
        "match": (log(2), log(4) - 0.75 * log(3), log(4)),
    }

    def average(values: Sequence[float]) -> float:
        return sum(n[state] * value for state, value in enumerate(values)) / n.total()

    ovconf = overall(plan, "ovconf")
    assert ovconf[None] == pytest.approx(average(agreeing) - share(calibration, "correct"))
    confidences = branch.matched.read_all("confidences")
    for kind, n_tokens in {"sequence": 1, "sequence_mean": 2}.items():
        rows = confidences.filter(kind=kind)  # of every pair whose text no other prompt has
        planted = [exp(PLANTED[state_of(name)][2] / n_tokens) for name in rows["prompt_id"]]
        assert rows["confidence"].to_list() == pytest.approx(planted)
        gap = sum(planted) / len(planted) - share(rows, "correct")
        assert ovconf[f"confidence={kind}"] == pytest.approx(gap)
    assert overall(plan, "semantic_entropy") == pytest.approx(
        {f"confidence=entropy,cluster={name}": average(each) for name, each in entropy.items()}
    )
    assert overall(plan, "n_clusters") == pytest.approx(
        {
            "confidence=entropy,cluster=equal": average((3, 2, 4)),
            "confidence=entropy,cluster=match": average((2, 2, 4)),
        }
    )
    assert (
        {*overall(plan, "auroc")}
        == {*overall(plan, "prr")}
        == {
            *overall(plan, "semantic_entropy"),
            *ovconf,
        }
    )


def test_confidence_asked_for_is_that_of_the_planted_replies(
    planted_run: Callable[..., Plan], tmp_path: Path
) -> None:
    plan = planted_run(ASK)
    (branch,) = plan.branches
    rows = branch.matched.read_all("confidences")
    names = {kind: rows.filter(kind=kind)["prompt_id"] for kind in ("p_true", "verbalised")}
    assert names["p_true"].to_list() == names["verbalised"].to_list()
    assert set(names["p_true"]) == set(rows.filter(kind="sequence")["prompt_id"])
    odds = [1 / (1 + exp(false - true)) for true, false in TRUTHS]
    planted = {"p_true": odds, "verbalised": [0.9, None, 0.2]}
    for kind, values in planted.items():
        expected = [values[state_of(name)] for name in names[kind]]
        assert rows.filter(kind=kind)["confidence"].to_list() == [
            None if value is None else pytest.approx(value) for value in expected
        ]
    metrics = branch.metrics.read_all("metrics").filter(pl.col("slice").is_null(), metric="brier")
    counts = metrics.filter(variant="confidence=verbalised").select("n", "n_failed").row(0)
    n_silent = sum(state_of(name) == 1 for name in names["verbalised"])
    assert counts == (len(names["verbalised"]) - n_silent, n_silent)
    report.write(plan, {"total": 1.0})
    (path,) = (tmp_path / "results").rglob("confidence.csv")
    assert {"p_true", "verbalised"} <= {*pl.read_csv(path)["confidence"]}


def test_confidence_questions_stand_behind_the_answer_and_words_are_scored_alone(
    small: list[str], compute_here: Compute, tmp_path: Path
) -> None:
    engine = PlantedEngine(state_of)
    plan = compute_here(load([*small, ASK, f"artifacts={tmp_path}/artifacts"]), engine)
    (branch,) = plan.branches
    tokenizer = models.tokenizer(plan.weights)
    words = Counter(tokenizer.decode(list(ids)).strip() for ids in engine.asked_words)
    n = branch.repeated_answers.read_all("canary").height  # type: ignore[union-attr]
    assert words == {"True": n, "False": n}
    tokens = branch.extra_outputs[-2].counts("p_true").values()
    alone = branch.repeated_answers.counts("canary").values()  # type: ignore[union-attr]
    read, read_alone = (
        sum(float(c["prompt_tokens"]) for c in counts) for counts in (tokens, alone)
    )
    assert read > 3 * read_alone  # the prompt, and twice the prompt with the answer and question


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["benchmark=probelm-mini"], ["benchmark=probelm-mini", "no confidence"]),
        (["decoding.confidence.true=' False'"], ["decoding.confidence.true", "two different"]),
        (["model.thinking=on", "model.chat_template=true"], ["model.thinking=off"]),
    ],
)
def test_confidence_that_cannot_be_asked_is_refused(
    small: list[str], overrides: list[str], parts: list[str]
) -> None:
    kept = [text for text in small if not text.startswith("benchmark.path")]
    with pytest.raises(InputError) as refusal:
        load([*(kept if "benchmark" in overrides[0] else small), ASK, *overrides])
    for part in parts:
        assert part in str(refusal.value)


def test_confidence_kinds_are_reported_and_those_alone_of_samples_are_on_the_card(
    planted_run: Callable[..., Plan], tmp_path: Path
) -> None:
    plan = planted_run()
    metrics = report.write(plan, {"total": 1.0})
    files = {path.name for path in (tmp_path / "results").rglob("*")}
    assert {"confidence.csv", "confidence-differences.csv", "risk-coverage.svg"} <= files
    (path,) = (tmp_path / "results").rglob("confidence.csv")
    kinds = ["samples", "entropy,cluster=equal", "entropy,cluster=match"]
    assert pl.read_csv(path)["confidence"].to_list() == [*kinds, "sequence", "sequence_mean"]
    card = plan.run.method.show.card(metrics)
    assert not card["metric"].str.contains("confidence|entropy").any()
    assert {"AUROC", "AURC", "PRR"} <= {*card["metric"]}


def test_confidence_of_sets_of_answers_is_measured_of_the_sampled_queries(
    small: list[str], tmp_path: Path, compute_here: Compute
) -> None:
    plain = [text for text in small if not text.startswith(("benchmark.path", "decoding.samples"))]
    ours = ["benchmark=kamel-mini", "benchmark.relations=[P30,P569,P1412]", "prompt=1-shot"]
    samples = ["decoding.samples.n_prompts=6", "decoding.samples.n_answers=25"]
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    plan = compute_here(load([*plain, *ours, *samples, *folders]))
    (branch,) = plan.branches
    assert branch.matched.read_all("calibration").height == 6
    metrics = branch.metrics.read_all("metrics").filter(pl.col("slice").is_null())
    counts = dict(metrics.filter(metric="prr").select("variant", "n").iter_rows())
    n_repeated = branch.repeated_answers.read_all("canary").height  # type: ignore[union-attr]
    assert counts[None] == counts["confidence=entropy,cluster=match"] == 6
    assert counts["confidence=sequence"] == n_repeated > 6
    report.write(plan, {"total": 1.0})
    assert [*(tmp_path / "results").rglob("confidence.csv")]
