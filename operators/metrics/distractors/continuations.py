"""Measures of what a model says by itself after a cloze: Precision@n, ROUGE-L, BERTScore, a judge.

The table `continued` has, of each cloze, the likeliest sequences of a beam search (`texts`, the
likeliest first) and the likeliest next tokens (`top_tokens`). The right answer's names are its
labels. A measure of sequences takes the best of the first `width` of them.

Source: "Factual Knowledge Assessment of Language Models Using Distractors", Table 2.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import polars as pl

from factsweep.operators.metrics.distractors import preference
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import Row, table

Labels = Mapping[str, Sequence[str]]  # of each pair's right answer
# How alike two texts are, for each pair of a reference and a continuation.
Alike = Callable[[Sequence[tuple[str, str]]], Sequence[float]]
# Whether a continuation is correct, for each cloze, labels and continuation; null: no verdict.
Judge = Callable[[Sequence[tuple[str, Sequence[str], str]]], Sequence[float | None]]


def of_top_tokens(continued: pl.DataFrame, labels: Labels) -> pl.DataFrame:
    """Precision@n of each cloze: whether one of the n likeliest next tokens is a label (VALUES).

    Blanks around a token do not count: the first token after a cloze begins with one.

    >>> continued = pl.DataFrame({
    ...     "prompt_id": ["p"], "pair_id": ["t"], "relation_id": ["P36"],
    ...     "template_id": ["P36.0"], "subject_index": [0], "top_tokens": [[" the", " Rome"]],
    ... })
    >>> of_top_tokens(continued, {"t": ["Rome"]}).select("hyperparameters", "value").rows()
    [('n=1', 0.0), ('n=2', 1.0)]
    """
    found = [
        [token.strip() in labels[pair_id] for token in tokens]
        for pair_id, tokens in continued.select("pair_id", "top_tokens").iter_rows()
    ]
    return _best_of_first(continued, found, "precision", "n={}", preference.N_GRID)


def of_texts(
    continued: pl.DataFrame, labels: Labels, measure: str, alike: Alike, widths: Sequence[int]
) -> pl.DataFrame:
    """The best match of a label with one of the first continuations, for each width (VALUES).

    Each pair of texts is compared once, however often it occurs.
    """
    rows = list(continued.select("pair_id", "texts").iter_rows())
    all_pairs = (
        (label, text) for pair_id, texts in rows for text in texts for label in labels[pair_id]
    )
    pairs = list(dict.fromkeys(all_pairs))
    scores = dict(zip(pairs, alike(pairs), strict=True))
    found = [
        [max(scores[label, text] for label in labels[pair_id]) for text in texts]
        for pair_id, texts in rows
    ]
    return _best_of_first(continued, found, measure, "width={}", widths)


def of_judged(
    continued: pl.DataFrame, labels: Labels, clozes: Mapping[str, str], judge: Judge
) -> pl.DataFrame:
    """Whether a judge finds one of the first continuations correct, for each width (VALUES).

    `clozes` has the text of each prompt. A cloze without a verdict that could be read has no value.
    """
    first = pl.col("texts").list.head(preference.JUDGE_WIDTHS[-1])
    rows = list(continued.select("prompt_id", "pair_id", first).iter_rows())
    asked = [
        (clozes[prompt_id], labels[pair_id], text)
        for prompt_id, pair_id, texts in rows
        for text in texts
    ]
    verdicts = iter(judge(asked))
    found = [[next(verdicts) for _ in texts] for _, _, texts in rows]
    return _best_of_first(continued, found, "judge", "width={}", preference.JUDGE_WIDTHS)


def _best_of_first(
    continued: pl.DataFrame,
    found: Sequence[Sequence[float | None]],
    measure: str,
    name: str,
    grid: Sequence[int],
) -> pl.DataFrame:
    """The best of the first n of each row's values, for each n; null without any."""
    best = [list(accumulate(each, _better)) for each in found]
    rows = continued.with_columns(best=pl.Series(best, dtype=pl.List(pl.Float64)))
    parts = [preference.VALUES.to_frame()]
    for n in preference.up_to(grid, max(map(len, found), default=0)):
        best_of_n = pl.col("best").list.head(n).list.last()
        parts.append(preference.values(rows, measure, name.format(n), best_of_n))
    return pl.concat(parts)


def _better(one: float | None, other: float | None) -> float | None:
    known = [each for each in (one, other) if each is not None]
    return max(known) if known else None


def rouge_l(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """ROUGE-L of each pair: the F-measure of their longest common subsequence of words.

    Source: Lin 2004, as Google's package rouge-score computes it, without stemming.

    >>> rouge_l([("United States", "the United States of America"), ("Rome", "Roma")])
    [0.5714285714285715, 0.0]
    """
    scorer = _rouge_scorer()
    return [float(scorer.score(*pair)["rougeL"].fmeasure) for pair in pairs]


@cache
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=False)


_WIDTH = "width="
# The numbers of next tokens that stand in the metrics table.
_N_TOKENS = tuple(n for n in preference.NUMBERS if n in preference.N_GRID)
_PRECISION = "share of clozes with a right name among the {} likeliest next tokens"
METRICS = (
    *(
        Metric(f"precision_at_{n}", f"Precision@{n}", _PRECISION.format(n), "higher")
        for n in _N_TOKENS
    ),
    *(
        # BERTScore is a mean of cosines.
        Metric(name, heading, f"{says}, mean over clozes", "higher", range=(-1, 1))
        for name, heading, says in (
            ("rouge_l", "ROUGE-L", "best overlap of words of a right name and a continuation"),
            ("bertscore", "BERTScore", "best likeness of a right name and a continuation"),
            ("judge", "LLM-as-a-judge", "whether a judge finds a continuation correct"),
        )
    ),
)


def baselines(
    clozes: pl.DataFrame, n_failed: pl.DataFrame, *, seed: int, n_rounds: int
) -> pl.DataFrame:
    """The mean over facts of each measure of continuations (table ROWS).

    `precision_at_n` has a row for each n of NUMBERS that is in the grid; the other measures have
    one for the largest width, which stands in the variant (`width=5`). A cloze without a value
    counts in `n_failed`. Slices: each relation.
    """
    rows: list[Row] = []
    for metric, variant, mine in _measured(clozes):
        terms, counts = preference.cloze_terms(mine, n_failed, pl.col("value").mean())
        found = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds)
        rows += counts.rows(metric, found, variant)
    return table(rows)


def _measured(clozes: pl.DataFrame) -> Iterator[tuple[str, str | None, pl.DataFrame]]:
    for n in _N_TOKENS:
        mine = clozes.filter(measure="precision", hyperparameters=f"n={n}")
        if mine.height:
            yield f"precision_at_{n}", None, mine
    for measure in ("rouge_l", "bertscore", "judge"):
        mine = clozes.filter(measure=measure)
        widths = mine["hyperparameters"].str.strip_prefix(_WIDTH).cast(pl.Int64).to_list()
        if widths:
            variant = f"{_WIDTH}{max(widths)}"
            yield measure, variant, mine.filter(hyperparameters=variant)
