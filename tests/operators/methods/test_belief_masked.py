"""Predictions of masked models, against reading them one by one."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.methods.belief_masked import REASON, label_probabilities, match_tokens
from factsweep.operators.schemas import conform, schema

TOKENS = {1: "rome", 2: "##s", 3: "▁oslo"}
LABELS = schema("pair_id text, token_id int")


def answered(pairs: list[str], tokens: list[int]) -> pl.DataFrame:
    ids = [f"{pair}.000.{i}" for i, pair in enumerate(pairs)]
    prompts = {"prompt_id": ids, "relation_id": "P1", "pair_id": pairs}
    columns = {"template_id": "P1.000", "subject_index": 0, "token_id": tokens}
    texts = [TOKENS[token] for token in tokens]
    return pl.DataFrame(
        {**prompts, **columns, "token": texts, "probability": [token / 4 for token in tokens]},
        schema_overrides=schema(
            "prompt_id text, pair_id text, token_id int, token text, probability float"
        ),
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
    given_answers = answered([pair for pair, _ in asked], [token for _, token in asked])
    rows = [(pair, token) for pair, tokens in right.items() for token in tokens]
    labels = pl.DataFrame(rows, schema=LABELS, orient="row")
    tables = match_tokens(given_answers, labels.sample(fraction=1, shuffle=True, seed=1))
    ids = given_answers["prompt_id"]
    expected = [
        (i, f"\x1f{TOKENS[token]}\x1f", 1, token in right[pair])
        for i, (pair, token) in zip(ids, asked, strict=True)
        if any(right[pair])
    ]
    answers = tables["answers"].select("prompt_id", "key", "n_lemmas", "correct")
    assert answers.rows() == expected
    confidence = tables["calibration"].select("prompt_id", "confidence").rows()
    assert confidence == [
        (i, token / 4) for i, (pair, token) in zip(ids, asked, strict=True) if any(right[pair])
    ]
    impossible = [i for i, (pair, _) in zip(ids, asked, strict=True) if not any(right[pair])]
    assert tables["errors"].select("prompt_id", "reason").rows() == [
        (i, REASON) for i in impossible
    ]


def test_matched_tables_are_canonical() -> None:
    labels = pl.DataFrame({"pair_id": ["P1.a", "P1.b"], "token_id": [1, None]})
    tables = match_tokens(answered(["P1.a", "P1.b"], [1, 1]), labels)
    assert list(tables) == ["answers", "calibration", "errors"]
    for name, rows in tables.items():
        assert conform(rows, name).num_rows == 1


def test_label_probabilities_are_those_of_the_right_labels() -> None:
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
    answers = answered(["P1.a", "P1.b"], [1, 1]).with_columns(
        candidate_probabilities=pl.Series(rows)
    )
    probabilities = label_probabilities(answers, labels, candidates)
    assert probabilities.select("pair_id", "object_id", "label_index", "probability").rows() == [
        ("P1.a", "O0", 0, 0.3),
        ("P1.b", "O0", 0, 0.4),
        ("P1.b", "O1", 0, 0.5),
    ]
