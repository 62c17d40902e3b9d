"""Where facts are learned and forgotten along an axis."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.comparing.along import lives

LABELS = ["a", "b", "c", "d", "e", "f"]
# By the curve of a fact: its life, where it is learned, and where it is forgotten.
CASES: dict[tuple[float | None, ...], tuple[str, str | None, str | None]] = {
    (1, 1, 1, 1): ("always known", "a", None),
    (1, 1, 0, 1): ("always known", "a", None),  # a single dip
    (1, 1, 1, 0): ("always known", "a", None),  # nothing follows that would confirm it
    (0, 0, 0, 0): ("never known", None, None),
    (0, 1, 0, 1): ("never known", None, None),
    (0, 0, 0, 1): ("never known", None, None),
    (0, 1, 1, 0): ("learned", "b", None),
    (1, 0, 1, 1): ("learned", "c", None),
    (1, 1, 0, 0): ("forgotten", "a", "c"),
    (0, 1, 1, 0, 0, 1): ("known for a while", "b", "d"),
    (1, 1, 0, 0, 1, 1): ("learned anew", "a", "c"),
    (0.5, 0.5, 0.5, 0.5): ("never known", None, None),
    (1, 1, 0.5, 0.5): ("always known", "a", None),
    (0.51, 0.51, 0.49, 0.49): ("forgotten", "a", "c"),
    (0, 1, 0.5, 1): ("never known", None, None),
    (1, 1): ("always known", "a", None),
    (0, 1): ("never known", None, None),
}


def rows(*curves: tuple[float | None, ...]) -> pl.DataFrame:
    """The shares of facts, one curve per fact; null: no row."""
    shares = [
        (label, "P1", f"t{number}", share)
        for number, curve in enumerate(curves)
        for label, share in zip(LABELS, curve, strict=False)
        if share is not None
    ]
    schema = {"label": pl.String, "relation_id": pl.String, "pair_id": pl.String}
    return pl.DataFrame(shares, schema | {"share": pl.Float64}, orient="row")


def test_life_of_a_fact_needs_two_points_in_a_row(subtests: pytest.Subtests) -> None:
    for curve, expected in CASES.items():
        with subtests.test(str(curve)):
            labels = LABELS[: len(curve)]
            table = lives(rows(curve), labels)
            assert table.select("life", "learned_at", "forgotten_at").row(0) == expected


def test_life_leaves_out_facts_that_a_point_lacks_and_says_nothing_of_one_point() -> None:
    missing = rows((1, 1, 1), (1, None, 1), (1, 1, None)).with_columns(
        share=pl.when(pl.col("pair_id") == "t3").then(None).otherwise("share")
    )
    assert lives(missing, LABELS[:3])["pair_id"].to_list() == ["t0"]
    null = rows((1, 1)).with_columns(share=pl.lit(None, pl.Float64))
    assert lives(null, LABELS[:2]).is_empty()
    for labels in ([], ["a"]):
        assert lives(rows((1,)), labels).is_empty()


def spelled_out(curve: list[float], threshold: float) -> tuple[int | None, int | None]:
    """Where a fact is learned and forgotten, by the words of the definition."""
    places = range(len(curve) - 1)
    learned = [i for i in places if curve[i] > threshold and curve[i + 1] > threshold]
    if not learned:
        return None, None
    forgotten = [
        i for i in places if i > learned[0] and curve[i] < threshold and curve[i + 1] < threshold
    ]
    return learned[0], forgotten[0] if forgotten else None


@given(
    curve=st.lists(st.sampled_from([0, 0.25, 0.5, 0.75, 1]), min_size=2, max_size=6),
    threshold=st.sampled_from([0.25, 0.5, 0.6]),
)
def test_life_is_that_of_the_definition(curve: list[float], threshold: float) -> None:
    labels = LABELS[: len(curve)]
    (life,) = lives(rows(tuple(curve)), labels, known_share=threshold).iter_rows(named=True)
    places = spelled_out(curve, threshold)
    expected = tuple(None if place is None else labels[place] for place in places)
    assert (life["learned_at"], life["forgotten_at"]) == expected
    assert life["shares"] == curve
    assert (life["life"] == "never known") == (expected[0] is None)
    assert (life["life"] == "always known") == (expected == ("a", None))
    if expected[0] is not None and expected[1] is None:
        assert life["is_known"] == [label >= expected[0] for label in labels]
