"""One-word ratio: how often a model keeps to "in one word"."""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import pair_terms


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


ONE_WORD_RATIO = Metric(
    "one_word_ratio",
    heading="one-word",
    says="share of answers that are one word",
    better="higher",
    terms=one_word_ratio_terms,
)
