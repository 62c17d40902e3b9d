"""Kinds of confidence: clusters and entropies, log-probabilities, and their differences."""

import json
from collections import Counter
from math import exp

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from factsweep.operators.matching.lemmas import key, matches
from factsweep.operators.metrics.belief import belief
from factsweep.operators.metrics.belief.confidence_kinds import (
    CONFIDENCES,
    bins_by_kind,
    by_kind,
    cluster_sizes,
    confidence_differences,
    confidence_kinds,
)
from factsweep.operators.schemas import empty
from tests.builders import frame
from tests.operators.metrics.belief.record_polygraph import (
    RECORD,
    connected,
    is_match,
    sample_sets,
)
from tests.operators.metrics.scalars import auroc

KEYS = st.sampled_from([None, "\x1fa\x1f", "\x1fb\x1f", "\x1fa\x1fb\x1f", "\x1fab\x1f"])
GREEDY = {"prompt_id": "p", "relation_id": "r", "pair_id": "f", "text": " Paris", "correct": True}
NONE = {"n_failed_samples": None, "seed": 1, "n_rounds": 20, "n_bins": 2}


def samples(*keys: str | None) -> pl.DataFrame:
    return pl.DataFrame({"key": keys}, {"key": pl.String}).with_columns(prompt_id=pl.lit("p"))


def kinds(greedy: pl.DataFrame, sampled: pl.DataFrame, *canary: tuple[object, ...]) -> pl.DataFrame:
    tables = {name: empty(name) for name in ("p_true", "verbalised")}
    tables["canary"] = frame("canary", *canary, finish_reason="stop")
    return confidence_kinds(greedy, sampled, tables)


@given(keys=st.lists(KEYS, min_size=1, max_size=12), data=st.data())
def test_entropy_any_samples_equals_that_of_their_clusters_in_any_order(
    keys: list[str | None], data: st.DataObject
) -> None:
    greedy = pl.DataFrame([GREEDY])
    rows = kinds(greedy, samples(*keys))
    words = [(each or "").split("\x1f")[1:-1] for each in keys]
    merged = connected(words, lambda a, b: a == b or bool(a and b and is_match(a, b)))
    sizes = {
        "entropy,cluster=equal": [*Counter(keys).values()],
        "entropy,cluster=match": [*map(len, merged)],
    }
    for kind, counts in sizes.items():
        row = rows.row(by_predicate=pl.col("kind") == kind, named=True)
        assert row["confidence"] == pytest.approx(-entropy(counts))
        assert row["n_clusters"] == len(counts)
    shuffled = data.draw(st.permutations(keys))
    assert kinds(greedy, samples(*shuffled)).equals(rows)


def test_entropy_sets_and_sequences_equal_those_of_lm_polygraph() -> None:
    record, sets = json.loads(RECORD.read_text()), sample_sets()
    ids = [f"p{i:03d}" for i in range(len(sets))]
    sampled = pl.DataFrame({"prompt_id": ids, "words": [each.samples for each in sets]})
    sampled = sampled.explode("words").select("prompt_id", key=key(pl.col("words")))
    greedy = pl.DataFrame([{**GREEDY, "prompt_id": name, "pair_id": name} for name in ids])
    canary = [
        (name, " Paris", len(each.logprobs), sum(each.logprobs))
        for name, each in zip(ids, sets, strict=True)
    ]
    rows = kinds(greedy, sampled, *canary)
    for kind, rounding in (("sequence", 1e-5), ("sequence_mean", 1e-5)):  # stored as float32
        assert rows.filter(kind=kind)["confidence"].to_list() == pytest.approx(
            record[kind], rel=rounding
        )
    for cluster in ("equal", "match"):
        of_cluster = rows.filter(kind=f"entropy,cluster={cluster}")
        ours = [-value for value in of_cluster["confidence"]]
        assert ours == pytest.approx(record[f"entropy {cluster}"], abs=1e-12)
        assert of_cluster["n_clusters"].to_list() == record[f"sets {cluster}"]


def test_sequence_is_of_the_answer_that_was_given_and_null_where_it_changed() -> None:
    names = ("same", "changed", "empty", "unscored")
    texts = (" Paris", " Rome", "", " Paris")
    greedy = pl.DataFrame(
        [
            {**GREEDY, "prompt_id": name, "text": "" if name == "empty" else " Paris"}
            for name in (*names, "once")
        ]
    )
    numbers = ((2, -1.0), (2, -1.0), (0, 0.0), (2, None))
    canary = [(*row[:2], *row[2]) for row in zip(names, texts, numbers, strict=True)]
    rows = kinds(greedy, samples(), *canary).sort("prompt_id")
    values = {kind: rows.filter(kind=kind)["confidence"].to_list() for kind in by_kind_names(rows)}
    # An empty answer has no tokens: the probability of nothing is 1, and the mean has none.
    assert values["sequence"] == [None, 1, pytest.approx(exp(-1)), None]
    assert values["sequence_mean"] == [None, None, pytest.approx(exp(-0.5)), None]
    counts = belief.kind_rows(rows, **NONE).filter(pl.col("slice").is_null(), metric="auroc")
    assert counts.select("variant", "n", "n_failed").rows() == [
        ("confidence=sequence", 2, 2),
        ("confidence=sequence_mean", 1, 3),
    ]


def by_kind_names(rows: pl.DataFrame) -> list[str]:
    return rows["kind"].unique().sort().to_list()


def many(n: int = 40) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The confidences of samples, and of two other kinds, of which one lacks some."""
    ids = [f"p{i:02d}" for i in range(n)]
    prompts = pl.DataFrame({"prompt_id": ids, "relation_id": "r", "pair_id": ids})
    place = pl.int_range(pl.len())
    prompts = prompts.with_columns(correct=place * 7 % 10 < 4)
    calibration = prompts.with_columns(confidence=(place * 3 % 11) / 10)
    orders = {"sequence": (place * 7 % 10) / 10, "entropy,cluster=equal": -(place % 4) / 1.0}
    parts = [
        prompts.with_columns(kind=pl.lit(kind), confidence=values, n_clusters=pl.lit(2))
        for kind, values in orders.items()
    ]
    rows = pl.concat(parts).select(pl.col(name).cast(t) for name, t in CONFIDENCES.items())
    is_lacking = (pl.col("kind") == "sequence") & (pl.col("prompt_id") < "p10")
    return calibration, rows.with_columns(confidence=pl.when(~is_lacking).then("confidence"))


def test_differences_are_those_of_the_answers_that_have_both_kinds() -> None:
    calibration, confidences = many()
    rows = confidence_differences(calibration, confidences, seed=1, n_rounds=50)
    assert rows["n"].to_list() == [40] * 4 + [30] * 8
    both = rows.filter(metric="auroc", second_kind="sequence").row(0, named=True)
    kept = calibration.filter(pl.col("prompt_id") >= "p10")
    sequence = confidences.filter(kind="sequence").drop_nulls("confidence")
    first, second = auroc(kept), auroc(sequence)
    assert (both["first"], both["second"]) == pytest.approx((first, second))
    assert both["difference"] == pytest.approx(both["first"] - both["second"])
    assert both["ci_low"] <= both["difference"] <= both["ci_high"]
    alone = confidence_differences(calibration, empty("confidences"), seed=1, n_rounds=5)
    assert alone.is_empty()


def test_kind_rows_of_an_order_have_no_probability_metrics() -> None:
    _, confidences = many()
    n_failed = pl.DataFrame({"relation_id": ["r"], "n_failed": [3]})
    rows = belief.kind_rows(confidences, **{**NONE, "n_failed_samples": n_failed})
    overall = rows.filter(pl.col("slice").is_null(), variant="confidence=entropy,cluster=equal")
    metrics = ["auroc", "aurc", "aurc_excess", "prr", "semantic_entropy", "n_clusters"]
    assert overall["metric"].to_list() == metrics
    assert overall["n_failed"].unique().to_list() == [3]
    values = dict(overall.select("metric", "value").iter_rows())
    assert (values["semantic_entropy"], values["n_clusters"]) == (1.5, 2)
    sequence = rows.filter(pl.col("slice").is_null(), variant="confidence=sequence")
    assert set(sequence["metric"]) == {"ovconf", "brier", "ece", *metrics[:4]}
    assert sequence.select("n", "n_failed").unique().rows() == [(30, 10)]


def test_bins_of_kinds_have_their_variant_and_the_samples_none() -> None:
    calibration, confidences = many()
    rows = bins_by_kind(calibration, confidences, 5)
    sizes = rows.group_by("variant").agg(pl.sum("n")).sort("variant")
    assert dict(sizes.iter_rows()) == {
        None: 40,
        "confidence=entropy,cluster=equal": 40,
        "confidence=sequence": 30,
    }
    nothing = bins_by_kind(calibration.clear(), confidences.clear(), 5)
    assert (nothing.schema, by_kind(calibration.clear(), confidences.clear())) == (rows.schema, {})


def test_clusters_of_several_prompts_are_apart() -> None:
    rows = pl.DataFrame({"prompt_id": ["p", "q", "q"], "key": ["\x1fa\x1f"] * 3})
    for match in (None, matches):
        assert sorted(cluster_sizes(rows, match).rows()) == [("p", 1), ("q", 2)]
