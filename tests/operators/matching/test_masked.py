"""Predictions of masked models, against reading them one by one."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.matching.masked import REASON, label_probabilities, matched
from factsweep.operators.schemas import conform

TOKENS = {1: "rome", 2: "##s", 3: "▁oslo"}
NO_LABELS = pl.DataFrame(
    schema={"relation_id": pl.String, "pair_id": pl.String, "token_id": pl.Int64}
)


def prompt_table(pairs: list[str]) -> pl.DataFrame:
    ids = [f"{pair}.000.{i}" for i, pair in enumerate(pairs)]
    return pl.DataFrame(
        {"prompt_id": ids, "pair_id": pairs, "template_id": "P1.000", "subject_index": 0},
        schema_overrides={"pair_id": pl.String, "prompt_id": pl.String},
    )


def prediction_table(prompts: pl.DataFrame, tokens: list[int]) -> pl.DataFrame:
    texts = [TOKENS[token] for token in tokens]
    columns = {"prompt_id": prompts["prompt_id"], "token_id": tokens, "token": texts}
    return pl.DataFrame(
        {**columns, "probability": [token / 4 for token in tokens]},
        schema_overrides={"token_id": pl.Int64, "token": pl.String, "probability": pl.Float64},
    )


@given(
    asked=st.lists(
        st.tuples(st.sampled_from(["P1.a", "P1.b", "P1.c"]), st.sampled_from([1, 2, 3]))
    ),
    right=st.fixed_dictionaries(
        {
            p: st.lists(st.sampled_from([None, 1, 2, 3]), min_size=1)
            for p in ("P1.a", "P1.b", "P1.c")
        }
    ),
)
def test_matched_any_predictions_equal_reading_one_by_one(
    asked: list[tuple[str, int]], right: dict[str, list[int | None]]
) -> None:
    prompts = prompt_table([pair for pair, _ in asked])
    predictions = prediction_table(prompts, [token for _, token in asked])
    rows = [("P1", pair, token) for pair, tokens in right.items() for token in tokens]
    labels = pl.DataFrame(rows, schema=NO_LABELS.schema, orient="row")
    found = matched(predictions.sample(fraction=1, shuffle=True, seed=1), prompts, labels)
    ids = prompts["prompt_id"]
    expected = [
        (i, f"\x1f{TOKENS[token]}\x1f", 1, token in right[pair])
        for i, (pair, token) in zip(ids, asked, strict=True)
        if any(right[pair])
    ]
    answers = found.answers.select("prompt_id", "key", "n_lemmas", "correct")
    assert answers.rows() == expected
    confidence = found.calibration.select("prompt_id", "confidence").rows()
    assert confidence == [
        (i, token / 4) for i, (pair, token) in zip(ids, asked, strict=True) if any(right[pair])
    ]
    impossible = [i for i, (pair, _) in zip(ids, asked, strict=True) if not any(right[pair])]
    assert found.errors.select("prompt_id", "reason").rows() == [(i, REASON) for i in impossible]


def test_matched_tables_are_canonical() -> None:
    prompts = prompt_table(["P1.a", "P1.b"])
    labels = pl.DataFrame({"relation_id": "P1", "pair_id": ["P1.a", "P1.b"], "token_id": [1, None]})
    found = matched(prediction_table(prompts, [1, 1]), prompts, labels)
    for name, rows in found._asdict().items():
        assert conform(rows, name).num_rows == 1


def test_matched_prompt_without_prediction_has_no_answer() -> None:
    prompts = prompt_table(["P1.a", "P1.a"])
    labels = pl.DataFrame({"relation_id": ["P1"], "pair_id": ["P1.a"], "token_id": [1]})
    found = matched(prediction_table(prompts.head(1), [1]), prompts, labels)
    assert found.answers["prompt_id"].to_list() == [prompts["prompt_id"][0]]
    assert found.errors.is_empty()


def test_label_probabilities_are_those_of_the_right_labels() -> None:
    prompts = prompt_table(["P1.a", "P1.b", "P1.b"])
    labels = pl.DataFrame(
        {
            "relation_id": "P1",
            "pair_id": ["P1.a", "P1.a", "P1.a", "P1.b", "P1.b"],
            "object_id": ["O0", "O0", "O0", "O0", "O1"],
            "label_index": [0, 1, 2, 0, 0],
            "token_id": [3, None, 3, 1, 2],
        }
    )
    candidates = pl.DataFrame({"relation_id": "P1", "token_id": [1, 2, 3]})
    rows = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]
    predictions = pl.DataFrame({"prompt_id": prompts["prompt_id"][:2], "probabilities": rows})
    found = label_probabilities(predictions, prompts, labels, candidates)
    assert found.select("pair_id", "object_id", "label_index", "probability").rows() == [
        ("P1.a", "O0", 0, 0.3),
        ("P1.b", "O0", 0, 0.4),
        ("P1.b", "O1", 0, 0.5),
    ]
