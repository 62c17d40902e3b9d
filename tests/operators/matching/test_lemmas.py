"""Keys of lemma lists, against a direct reading of "is a contiguous sublist of"."""

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from factsweep.operators.matching.lemmas import contains, key, key_length, mark_correct, matches

Lemmas = list[str]

# "a" is a substring of "ab", and lists repeat lemmas.
LEMMAS = st.lists(st.sampled_from(["a", "b", "ab", "ba", "aa"]), max_size=4)
PAIRS = st.lists(st.tuples(LEMMAS | st.none(), LEMMAS | st.none()), max_size=20)


def naive_contains(a: Lemmas | None, b: Lemmas | None) -> bool:
    if not a or not b:
        return False
    return any(a[start : start + len(b)] == b for start in range(len(a)))


def evaluated(pairs: list[tuple[Lemmas | None, Lemmas | None]], expression: pl.Expr) -> list[bool]:
    schema = {"a": pl.List(pl.String), "b": pl.List(pl.String)}
    lists = pl.DataFrame(pairs, schema=schema, orient="row")
    return lists.select(key(pl.col("a")), key(pl.col("b"))).select(expression).to_series().to_list()


@given(PAIRS)
@example([([], []), (None, None), ([], ["a"])])
def test_contains_and_matches_any_lists_equal_naive_sublists(
    pairs: list[tuple[Lemmas | None, Lemmas | None]],
) -> None:
    verdicts = evaluated(pairs, contains(pl.col("a"), pl.col("b")))
    assert verdicts == [naive_contains(a, b) for a, b in pairs]
    verdicts = evaluated(pairs, matches(pl.col("a"), pl.col("b")))
    assert verdicts == [naive_contains(a, b) or naive_contains(b, a) for a, b in pairs]


@given(LEMMAS)
def test_key_length_any_list_counts_its_lemmas(lemmas: Lemmas) -> None:
    frame = pl.DataFrame({"lemmas": [lemmas]}, schema={"lemmas": pl.List(pl.String)})
    assert frame.select(key_length(key(pl.col("lemmas")))).item() == (len(lemmas) or None)


ANSWERS = {"pair_id": pl.String, "key": pl.String}


def key_of(*lemmas: str) -> str | None:
    return "\x1f" + "\x1f".join(lemmas) + "\x1f" if lemmas else None


LABELS = pl.DataFrame(
    {"pair_id": ["t", "t", "u"], "key": [key_of("uk"), key_of("great", "britain"), None]}
)


def test_correct_answer_must_contain_a_label_of_its_pair() -> None:
    cases = [
        ("t", ["the", "uk"], True),
        ("t", ["great", "britain"], True),
        ("t", ["britain"], False),  # one direction only
        ("t", ["great", "old", "britain"], False),
        ("t", ["ukraine"], False),
        ("t", [], False),
        ("u", ["uk"], False),  # an empty label is contained in nothing
        ("u", [], False),
        ("v", ["uk"], False),  # without labels
        ("t", ["uk"], True),
        ("t", ["uk"], True),  # repeated
    ]
    rows = [(n, pair, key_of(*lemmas)) for n, (pair, lemmas, _) in enumerate(cases)]
    answers = pl.DataFrame(rows, {"n": pl.Int64, **ANSWERS}, orient="row")
    verdicts = mark_correct(answers, LABELS)
    assert verdicts.drop("correct").equals(answers)
    assert verdicts["correct"].to_list() == [is_right for _, _, is_right in cases]
    assert mark_correct(pl.DataFrame(schema=ANSWERS), LABELS).schema["correct"] == pl.Boolean
