"""Terms of a ratio of sums."""

import polars as pl

from factsweep.operators.metrics.shared.rows import TERMS, pair_terms, ratio


def test_ratio_zero_denominator_is_none() -> None:
    assert ratio(pl.DataFrame({"numerator": [0.0], "denominator": [0.0]})) is None


def test_ratio_no_pairs_is_none() -> None:
    assert ratio(pl.DataFrame(schema=TERMS)) is None


def test_pair_terms_integer_ids_become_sorted_text() -> None:
    rows = pl.DataFrame({"relation_id": [2, 1], "pair_id": [7, 8], "hit": [1, 0]})
    terms = pair_terms(rows, pl.sum("hit"), pl.len())
    assert terms.schema == TERMS
    assert terms["pair_id"].to_list() == ["8", "7"]
