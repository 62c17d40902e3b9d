"""BEAR's metrics, against naive readings and the scores that its authors published."""

import json
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.metrics.bear import bear, predict
from tests.builders import frame

DRAWS = {"seed": 1, "n_rounds": 50}
SPACES = frame("answer_spaces", ("P1", 0, "a"), ("P1", 1, "b"), ("P1", 2, "c"))


def pairs(*rights: str) -> pl.DataFrame:
    """The pairs of one relation with their right answers."""
    rows = [
        {
            "pair_id": f"P1.{n}",
            "relation_id": "P1",
            "objects": [{"object_id": None, "labels": [right]}],
        }
        for n, right in enumerate(rights)
    ]
    return frame("pairs", *rows)


def scores(by_template: dict[int, list[list[float | None]]]) -> pl.DataFrame:
    """The table `answer_scores`: by template, the log-probabilities of each pair's answers."""
    rows = [
        (f"P1.{n}.{t:03d}.{place}", "P1", f"P1.{n}", f"P1.{t:03d}", place, logprob)
        for t, of_pairs in by_template.items()
        for n, logprobs in enumerate(of_pairs)
        for place, logprob in enumerate(logprobs)
    ]
    return frame("answer_scores", *rows)


def test_predict_takes_the_likeliest_answer_and_the_first_of_a_tie() -> None:
    rows = predict(scores({0: [[-2.0, -1.0, -3.0], [-1.0, -1.0, -3.0]]}), pairs("b", "b"), SPACES)
    assert rows.select("prediction", "is_tie", "is_right").rows() == [
        (1, False, True),
        (0, True, False),
    ]


def test_predict_needs_a_score_of_every_answer() -> None:
    assert predict(scores({0: [[-2.0, None, -3.0]]}), pairs("a"), SPACES).is_empty()


def measure(predicted: pl.DataFrame, groups: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The metrics of relations with two templates."""
    templates = facts.select("relation_id").unique().with_columns(n_templates=pl.lit(2))
    return bear(predicted, groups, facts.select("relation_id", "pair_id"), templates, **DRAWS)


def value(metrics: pl.DataFrame, name: str, part: str | None = None) -> float | None:
    row = metrics.filter(pl.col("metric") == name, pl.col("slice").eq_missing(pl.lit(part)))
    return row["value"].item()


def test_bear_of_two_templates() -> None:
    facts = pairs("a", "b")
    answers = {0: [[-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0]], 1: [[-1.0, -2, -3], [-3.0, -1, -2]]}
    predicted = predict(scores(answers), facts, SPACES)
    groups = frame("relation_groups", ("P1", "domain=Geographic"), ("P1", "cardinality=1:1"))
    metrics = measure(predicted, groups, facts)
    assert value(metrics, "accuracy", "template=0") == 0.5
    assert value(metrics, "accuracy", "template=1") == 1
    assert value(metrics, "bear_score") == 0.75
    assert value(metrics, "bear_score", "domain=Geographic") == 0.75
    assert value(metrics, "relation_mean") == 0.75
    assert value(metrics, "consist") == 0.5
    assert value(metrics, "ties") == 0


def test_bear_an_instance_without_all_templates_has_failed() -> None:
    facts = pairs("a", "b")
    answers = {0: [[-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0]], 1: [[-1.0, -2, -3], [None, -1, -2]]}
    predicted = predict(scores(answers), facts, SPACES)
    no_groups = frame("relation_groups")
    metrics = measure(predicted, no_groups, facts)
    row = metrics.filter(pl.col("slice").is_null(), metric="bear_score")
    assert row.select("value", "n", "n_failed").row(0) == (1, 1, 1)


def test_bear_accuracy_of_the_authors_scores(shared_data: Path) -> None:
    folder = shared_data / "bear"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing")
    published = json.loads((folder / "gpt2_results/metadata_results.json").read_text())
    spaces = json.loads((folder / "BEAR/metadata_relations.json").read_text())
    for path in sorted((folder / "gpt2_results").glob("P*_results.jsonl"))[:6]:
        relation = path.name.partition("_")[0]
        labels = spaces[relation]["answer_space_labels"]
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        facts = frame(
            "pairs",
            *(
                {
                    "pair_id": f"{relation}.{n}",
                    "relation_id": relation,
                    "objects": [{"object_id": None, "labels": [labels[row["answer_idx"]]]}],
                }
                for n, row in enumerate(rows)
            ),
        )
        answer_scores = frame(
            "answer_scores",
            *(
                (f"{n}.{place}", relation, f"{relation}.{n}", f"{relation}.000", place, score)
                for n, row in enumerate(rows)
                for place, score in enumerate(row["pll_scores"])
            ),
        )
        space = frame("answer_spaces", *((relation, n, label) for n, label in enumerate(labels)))
        predicted = predict(answer_scores, facts, space)
        expected = [r["answer_idx"] == r["pll_scores"].index(max(r["pll_scores"])) for r in rows]
        assert predicted.height == len(rows)
        assert predicted["is_right"].mean() == pytest.approx(sum(expected) / len(expected))
        assert relation in published
