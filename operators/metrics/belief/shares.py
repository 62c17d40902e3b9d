"""Shares of prompts: Acc@1, how many are answered rightly, and how many in one word."""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import pair_terms


def acc_at_1_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair the share of its prompts that are answered correctly (0 to 1), over 1.

    Needs the columns relation_id, pair_id and correct. A pair without any answer is left out.

    Source: BELIEF, section 2.2, "Average accuracy". The paper averages N = 50,000 random draws;
    this is their expected value, computed exactly.

    >>> ids = {"relation_id": ["P1"] * 3, "pair_id": ["t1", "t1", "t2"]}
    >>> answers = pl.DataFrame({**ids, "correct": [True, False, True]})
    >>> acc_at_1_terms(answers)["numerator"].to_list()
    [0.5, 1.0]
    """
    return pair_terms(answers, pl.mean("correct"), pl.lit(1.0))


def one_word_ratio_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair its number of answers of exactly one lemma, over its number of answers.

    Needs the columns relation_id, pair_id and n_lemmas. An empty answer is not one word.

    Source: BELIEF-ICL, section 5.3 ("one-word generation"); counted here on lemmas, so
    that "Nanjing." is one word.

    >>> ids = {"relation_id": ["P1"] * 4, "pair_id": ["t1", "t1", "t1", "t2"]}
    >>> answers = pl.DataFrame({**ids, "n_lemmas": [1, 0, 3, 1]})
    >>> one_word_ratio_terms(answers).select("numerator", "denominator").rows()
    [(1.0, 3.0), (1.0, 1.0)]
    """
    return pair_terms(answers, (pl.col("n_lemmas") == 1).sum(), pl.len())


_RIGHT = "share of prompts answered right, averaged over facts; 0 to 1"
_ONE_WORD = "share of answers that are one word"
ACC_AT_1 = Metric("acc_at_1", "Acc@1", _RIGHT, "higher", terms=acc_at_1_terms)
ONE_WORD_RATIO = Metric(
    "one_word_ratio", "one-word", _ONE_WORD, "higher", terms=one_word_ratio_terms
)
