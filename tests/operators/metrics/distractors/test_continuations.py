"""Precision@n, ROUGE-L and a judge: against the definitions of Table 2, read naively."""

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.distractors.baselines import (
    METRICS,
    WIDTHS,
    baselines,
    of_judged,
    of_texts,
    of_top_tokens,
    rouge_l,
)

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(" ".join)
NOBODY = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})


def continued(
    texts: list[list[str]], top_tokens: list[list[str]] | None = None, facts: str = ""
) -> pl.DataFrame:
    n = len(texts)
    return pl.DataFrame(
        {
            "prompt_id": [f"p{i}" for i in range(n)],
            "relation_id": ["P"] * n,
            "pair_id": list(facts) or [f"f{i}" for i in range(n)],
            "template_id": ["P.0"] * n,
            "subject_index": list(range(n)),
            "texts": texts,
            "top_tokens": top_tokens or [[]] * n,
        },
        schema_overrides={"texts": pl.List(pl.String), "top_tokens": pl.List(pl.String)},
    )


def by_configuration(found: pl.DataFrame, pair_id: str = "f0") -> dict[str, float | None]:
    mine = found.filter(pair_id=pair_id)
    return dict(mine.select("hyperparameters", "value").iter_rows())


def naive_rouge(reference: str, text: str) -> float:
    """The F-measure of the longest common subsequence of words, by its recursive definition."""

    def longest(a: Sequence[str], b: Sequence[str]) -> int:
        if not a or not b:
            return 0
        if a[0] == b[0]:
            return 1 + longest(a[1:], b[1:])
        return max(longest(a[1:], b), longest(a, b[1:]))

    a, b = reference.split(), text.split()
    common = longest(a, b)
    return 2 * common / (len(a) + len(b)) if common else 0.0


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5))
def test_rouge_is_that_of_the_longest_common_subsequence(pairs: list[tuple[str, str]]) -> None:
    assert rouge_l(pairs) == pytest.approx([naive_rouge(*pair) for pair in pairs])


@given(st.lists(WORDS, min_size=1, max_size=6), st.lists(WORDS, min_size=1, max_size=3))
def test_measure_of_texts_is_the_best_of_the_first_beams_and_labels(
    texts: list[str], labels: list[str]
) -> None:
    found = by_configuration(
        of_texts(continued([texts]), {"f0": labels}, "rouge_l", rouge_l, WIDTHS)
    )
    for name, value in found.items():
        first = texts[: int(name.removeprefix("width="))]
        best = max(naive_rouge(label, text) for label in labels for text in first)
        assert value == pytest.approx(best)
    assert max(int(name.removeprefix("width=")) for name in found) == len(texts)


@given(st.lists(st.sampled_from([" a", "b", "A", " a b"]), min_size=1, max_size=8))
def test_precision_asks_whether_a_label_is_among_the_likeliest_tokens(tokens: list[str]) -> None:
    found = by_configuration(of_top_tokens(continued([[]], [tokens]), {"f0": ["a", "a c"]}))
    for name, value in found.items():
        assert value == float(" a" in tokens[: int(name.removeprefix("n="))])


def test_judge_sees_cloze_labels_and_the_first_beams_alone() -> None:
    asked: list[tuple[str, Sequence[str], str]] = []

    def judge(questions: Sequence[tuple[str, Sequence[str], str]]) -> list[float | None]:
        asked.extend(questions)
        return [float(text == "yes") for _, _, text in questions]

    said = continued([["no", "yes", "no", "no", "no", "yes"], ["no"] * 6])
    found = of_judged(said, {"f0": ["x"], "f1": ["y"]}, {"p0": "c", "p1": "d"}, judge)
    assert asked[0] == ("c", ["x"], "no")
    assert len(asked) == 10
    assert by_configuration(found) == {"width=1": 0.0, "width=2": 1.0, "width=5": 1.0}
    assert by_configuration(found, "f1") == {"width=1": 0.0, "width=2": 0.0, "width=5": 0.0}


def test_continuation_without_verdict_counts_for_nothing() -> None:
    said = continued([["a", "b"], ["a"]])
    verdicts = iter([None, 0.0, None])
    found = of_judged(
        said,
        {"f0": [], "f1": []},
        {"p0": "", "p1": ""},
        lambda asked: [next(verdicts) for _ in asked],
    )
    assert by_configuration(found) == {"width=1": None, "width=2": 0.0}
    assert by_configuration(found, "f1") == {"width=1": None, "width=2": None}


def test_numbers_of_continuations_are_means_over_clozes_then_facts() -> None:
    said = continued([[], [], []], [["a"], ["b"], ["b"]], facts="ttu")
    rows = baselines(of_top_tokens(said, {"t": ["a"], "u": ["b"]}), NOBODY, seed=1, n_rounds=10)
    (row,) = rows.filter(pl.col("slice").is_null()).select("metric", "value", "n").rows()
    assert row == ("precision_at_1", 0.75, 3)


def test_number_is_that_of_the_widest_beam_which_its_variant_names() -> None:
    found = of_texts(continued([["x", "a"]]), {"f0": ["a"]}, "rouge_l", rouge_l, WIDTHS)
    rows = baselines(found, NOBODY, seed=1, n_rounds=10).filter(pl.col("slice").is_null())
    assert rows.select("variant", "metric", "value").rows() == [("width=2", "rouge_l", 1.0)]


def test_cloze_without_verdict_is_counted_as_failed() -> None:
    verdicts = iter([None, 1.0])
    found = of_judged(
        continued([["a"], ["a"]]),
        {"f0": [], "f1": []},
        {"p0": "", "p1": ""},
        lambda asked: [next(verdicts) for _ in asked],
    )
    rows = baselines(found, NOBODY, seed=1, n_rounds=10).filter(pl.col("slice").is_null())
    assert rows.select("value", "n", "n_failed").row(0) == (1.0, 1, 1)
    assert set(rows["metric"]) <= {metric.name for metric in METRICS}


def test_without_continuations_there_are_no_rows() -> None:
    none = continued([])
    said = pl.concat([of_top_tokens(none, {}), of_texts(none, {}, "rouge_l", rouge_l, WIDTHS)])
    assert said.is_empty()
    assert baselines(said, NOBODY, seed=1, n_rounds=10).is_empty()
