"""Effects: runs that differ in one thing are compared, and no others."""

import re
from itertools import combinations

import polars as pl
from polars.testing import assert_frame_equal

from factsweep.operators.metrics.comparing.comparison import adjust_p_values, compare
from factsweep.operators.metrics.comparing.paired import paired_terms
from factsweep.operators.tables.belief import EFFECTS, effects, effects_table, pairs
from factsweep.operators.tables.shared.pivot import Answers, ModelSetting
from tests.messages import naming

BASE = ModelSetting("m", "zero-shot", None)
SHOWN = ModelSetting("m", "4-random", None)
BY_PROMPT = ModelSetting("m", "4-random", "scope=prompt")
QUESTION = ModelSetting("m", "4-random", "style=question")
MASKED_QUESTION = ModelSetting("m", "4-random", "templates=question")
MANUAL = ModelSetting("m", "4-random", "templates=manual")
RELATION = ModelSetting("m", "4-relation", None)
TUNED = ModelSetting("m-it", "4-random", None)
OTHER = ModelSetting("other", "zero-shot", None)


def answers(*correct: bool) -> pl.DataFrame:
    n = len(correct)
    return pl.DataFrame(
        {
            "prompt_id": [f"p{i}" for i in range(n)],
            "relation_id": ["P1"] * n,
            "pair_id": [f"t{i // 2}" for i in range(n)],
            "template_id": ["P1.a", "P1.b"] * (n // 2) + ["P1.a"] * (n % 2),
            "key": [f"\x1f{c}\x1f" for c in correct],
            "n_lemmas": [1] * n,
            "correct": correct,
        }
    )


def loaded(rows: pl.DataFrame) -> Answers:
    relations = tuple(rows["relation_id"].unique(maintain_order=True))
    tables = {"answers": rows, "calibration": rows.clear()}

    def tables_of(relation: str) -> dict[str, pl.DataFrame]:
        return {name: table.filter(relation_id=relation) for name, table in tables.items()}

    return Answers(relations, lambda relation: tables_of(relation)["answers"], tables_of)


def test_pairs_are_those_that_differ_in_one_thing() -> None:
    table = set(pairs([BASE, SHOWN, BY_PROMPT, QUESTION, MANUAL, RELATION, TUNED, OTHER]))
    assert table == {
        ("demonstrations", BASE, SHOWN),
        ("demonstrations", BASE, BY_PROMPT),
        ("demonstrations", BASE, RELATION),
        ("scope", SHOWN, BY_PROMPT),
        ("question style", SHOWN, QUESTION),
        ("templates", SHOWN, MANUAL),
        ("choice of demonstrations", SHOWN, RELATION),
        ("instruction tuning", SHOWN, TUNED),
        ("model", BASE, OTHER),
    }


def test_pairs_question_style_is_held_against_mask_style_on_the_same_templates() -> None:
    assert list(pairs([QUESTION, MASKED_QUESTION])) == [
        ("question style", MASKED_QUESTION, QUESTION)
    ]


def test_pairs_order_of_the_runs_does_not_matter() -> None:
    runs = [BASE, SHOWN, QUESTION, TUNED, RELATION]
    for left, right in combinations(runs, 2):
        assert set(pairs([left, right])) == set(pairs([right, left]))


def test_effects_are_the_second_less_the_first() -> None:
    old_answers, new_answers = answers(True, False, False, False), answers(True, True, True, False)
    table = effects({BASE: loaded(old_answers), SHOWN: loaded(new_answers)}, n_rounds=20)
    assert table.schema == EFFECTS
    row = table.row(0, named=True)
    assert (row["effect"], row["from"], row["to"]) == (
        "demonstrations",
        "m zero-shot",
        "m 4-random",
    )
    assert (row["metric"], row["first"], row["second"]) == ("acc_at_1", 0.25, 0.75)
    assert row["ci_low"] <= row["difference"] == 0.5 <= row["ci_high"]
    assert re.search(naming("4 prompts of 2 facts", "template and name"), row["paired"])
    assert effects_table(table).row(0, named=True)["difference"] == "+.5000"


def test_effects_are_over_all_relations() -> None:
    left = answers(True, False, False, False)
    right = left.with_columns(relation_id=pl.lit("P2"), prompt_id=pl.format("q{}", "prompt_id"))
    run = loaded(pl.concat([left, right]))
    (paired,) = effects({BASE: run, SHOWN: run}, n_rounds=20)["paired"].unique()
    assert re.search(naming("8 prompts of 4 facts"), paired)


def test_effects_are_what_compare_computes() -> None:
    old_answers, new_answers = answers(True, False, False, False), answers(True, True, True, False)
    rows = effects({BASE: loaded(old_answers), SHOWN: loaded(new_answers)}, n_rounds=20)
    terms = paired_terms(old_answers, new_answers, robust_share=0.9)
    compared = adjust_p_values(compare(terms, seed=0, n_rounds=20), "acc_at_1")
    expected = compared.filter(pl.col("relation_id").is_null()).drop("relation_id")
    shown = expected.filter(pl.col("metric").is_in(rows["metric"].to_list()))
    assert_frame_equal(rows.select(expected.columns), shown)
    assert rows["p_holm"].null_count() == 1


def test_effects_of_other_templates_are_those_of_facts() -> None:
    every, manual = answers(True, False, False, False), answers(True, False, False, False)[::2]
    table = effects({SHOWN: loaded(every), MANUAL: loaded(manual)}, n_rounds=20)
    row = table.row(0, named=True)
    assert (row["metric"], row["first"], row["second"]) == ("acc_at_1", 0.25, 0.5)
    assert re.search(naming("2 facts", "4 prompts in the first", "2 in"), row["paired"])


def test_effects_without_a_pair_is_empty() -> None:
    assert effects({BASE: loaded(answers(True))}).is_empty()
