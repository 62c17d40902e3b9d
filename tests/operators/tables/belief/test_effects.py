"""Effects: runs that differ in one thing are compared, and no others."""

from itertools import combinations

import polars as pl

from operators.tables.belief.effects import effects, pairs
from operators.tables.shared.asking import Asking

BASE = Asking("m", "zero-shot", None)
SHOWN = Asking("m", "4-random", None)
BY_PROMPT = Asking("m", "4-random", "scope=prompt")
QUESTION = Asking("m", "4-random", "style=question")
MASKED_QUESTION = Asking("m", "4-random", "templates=question")
TUNED = Asking("m-it", "4-random", None)
OTHER = Asking("other", "zero-shot", None)


def answers(*correct: bool) -> pl.DataFrame:
    n = len(correct)
    return pl.DataFrame(
        {
            "prompt_id": [f"p{i}" for i in range(n)],
            "relation_id": ["P1"] * n,
            "pair_id": [f"t{i // 2}" for i in range(n)],
            "key": [f"\x1f{c}\x1f" for c in correct],
            "n_lemmas": [1] * n,
            "correct": correct,
        }
    )


def test_pairs_are_those_that_differ_in_one_thing() -> None:
    found = set(pairs([BASE, SHOWN, BY_PROMPT, QUESTION, TUNED, OTHER]))
    assert found == {
        ("demonstrations", BASE, SHOWN),
        ("demonstrations", BASE, BY_PROMPT),
        ("question style", SHOWN, QUESTION),
        ("instruction tuning", SHOWN, TUNED),
    }


def test_pairs_question_style_is_held_against_mask_style_on_the_same_templates() -> None:
    assert list(pairs([QUESTION, MASKED_QUESTION])) == [
        ("question style", MASKED_QUESTION, QUESTION)
    ]


def test_pairs_order_of_the_runs_does_not_matter() -> None:
    runs = [BASE, SHOWN, QUESTION, TUNED]
    for one, other in combinations(runs, 2):
        assert set(pairs([one, other])) == set(pairs([other, one]))


def test_effects_are_the_second_less_the_first() -> None:
    before, after = answers(True, False, False, False), answers(True, True, True, False)
    loads = {BASE: lambda: before, SHOWN: lambda: after}
    row = effects(loads, n_rounds=20).row(0, named=True)
    assert (row["effect"], row["from"], row["to"]) == (
        "demonstrations",
        "m zero-shot",
        "m 4-random",
    )
    assert (row["metric"], row["first"], row["second"]) == ("acc_at_1", 0.25, 0.75)
    assert row["ci_low"] <= row["difference"] == 0.5 <= row["ci_high"]


def test_effects_without_a_pair_is_empty() -> None:
    assert effects({BASE: lambda: answers(True)}).is_empty()
