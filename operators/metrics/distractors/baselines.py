"""The measures that the paper compares with: Precision@n, ROUGE-L, BERTScore, a judge, and KaRR.

The table `continued` has, of each cloze, the likeliest sequences of a beam search (`texts`, the
likeliest first) and the likeliest next tokens (`top_tokens`). The right answer's names are its
labels. A measure of sequences takes the best of the first `width` of them.

KaRR is the ratio of the right answer's probability after its own clozes to that by chance:

    P = mean over the fact's clozes c of the sum over the answer's labels of P(label | c)
    S, R = the same, of clozes of other subjects, and of other relations (operators.prompts.clozes)
    KaRR = sqrt( P / S · P / R ) = P / sqrt( S · R )

Source: "Factual Knowledge Assessment of Language Models Using Distractors", Table 2. KaRR: Dong et
al. 2023, "Statistical Knowledge Assessment for Large Language Models", the geometric mean of two
risk ratios; a fact is known above 22. Differences from the paper: docs/metrics.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import inf
from typing import Any, Unpack

import polars as pl

from factsweep.operators.metrics.distractors import distractors
from factsweep.operators.metrics.shared.bootstrap import Draws
from factsweep.operators.metrics.shared.rows import (
    Counts,
    Metric,
    Row,
    count_answers,
    pair_terms,
    ratio_rows,
    table,
)

WIDTHS = (1, 2, 5, 10, 20, 30, 50, 100)  # beams of ROUGE-L and BERTScore
_JUDGE_WIDTHS = (1, 2, 5)
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
    hits = [
        [token.strip() in labels[pair_id] for token in tokens]
        for pair_id, tokens in continued.select("pair_id", "top_tokens").iter_rows()
    ]
    return _best_of_first(continued, hits, "precision", "n={}", distractors.N_GRID)


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
    best = [
        [max(scores[label, text] for label in labels[pair_id]) for text in texts]
        for pair_id, texts in rows
    ]
    return _best_of_first(continued, best, measure, "width={}", widths)


def of_judged(
    continued: pl.DataFrame, labels: Labels, clozes: Mapping[str, str], judge: Judge
) -> pl.DataFrame:
    """Whether a judge finds one of the first continuations correct, for each width (VALUES).

    `clozes` has the text of each prompt. A cloze without a verdict that could be read has no value.
    """
    first = pl.col("texts").list.head(_JUDGE_WIDTHS[-1])
    rows = list(continued.select("prompt_id", "pair_id", first).iter_rows())
    questions = [
        (clozes[prompt_id], labels[pair_id], text)
        for prompt_id, pair_id, texts in rows
        for text in texts
    ]
    verdicts = iter(judge(questions))
    row_verdicts = [[next(verdicts) for _ in texts] for _, _, texts in rows]
    return _best_of_first(continued, row_verdicts, "judge", "width={}", _JUDGE_WIDTHS)


def _best_of_first(
    continued: pl.DataFrame,
    row_values: Sequence[Sequence[float | None]],
    measure: str,
    name: str,
    grid: Sequence[int],
) -> pl.DataFrame:
    """The best of the first n of each row's values, for each n; null without any."""
    best = [list(accumulate(numbers, _larger_value)) for numbers in row_values]
    rows = continued.with_columns(best=pl.Series(best, dtype=pl.List(pl.Float64)))
    parts = [distractors.VALUES.to_frame()]
    for n in distractors.up_to(grid, max(map(len, row_values), default=0)):
        best_of_n = pl.col("best").list.head(n).list.last()
        parts.append(distractors.values(rows, measure, name.format(n), best_of_n))
    return pl.concat(parts)


def _larger_value(first: float | None, second: float | None) -> float | None:
    return max((value for value in (first, second) if value is not None), default=None)


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


def of_karr(preferred: pl.DataFrame, by_chance: pl.DataFrame) -> pl.DataFrame:
    """P(c) / sqrt(S · R) of each cloze, whose mean over a fact's clozes is its KaRR (VALUES).

    `by_chance` has pair_id, `subjects` and `relations`: nats after each such cloze. Null: there is
    no cloze of either kind. Without any row in it there are no values.

    >>> import math
    >>> preferred = pl.DataFrame({
    ...     "pair_id": ["t"], "relation_id": ["P36"], "template_id": ["P36.0"],
    ...     "subject_index": [0], "prompt_id": ["t.0.0"], "open_logprob": [math.log(0.8)],
    ... })
    >>> chance = pl.DataFrame({
    ...     "pair_id": ["t"], "subjects": [[math.log(0.3), math.log(0.1)]],
    ...     "relations": [[math.log(0.05)]],
    ... })
    >>> of_karr(preferred, chance)["value"].round(6).to_list()
    [8.0]
    """
    if by_chance.is_empty():
        return distractors.VALUES.to_frame()
    # The logarithm of the mean of probabilities from their logarithms; null without any.
    most = pl.element().max()
    log_mean = most + (pl.element() - most).exp().mean().log()
    subjects, relations = (
        pl.col(name).list.eval(log_mean).list.first() for name in ("subjects", "relations")
    )
    chance = by_chance.select("pair_id", chance=(subjects + relations) / 2)
    rows = preferred.drop_nulls("open_logprob")
    rows = rows.join(chance, on="pair_id", how="left", maintain_order="left")
    return distractors.values(rows, "karr", "", (pl.col("open_logprob") - pl.col("chance")).exp())


_WIDTH = "width="
# The numbers of next tokens in the metrics table.
_N_TOKENS = tuple(n for n in distractors.NUMBERS if n in distractors.N_GRID)
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
KNOWN_ABOVE = 22
_SAYS = f"share of facts whose answer is {KNOWN_ABOVE} times likelier than by chance, in percent"
KARR = Metric("karr", f"KaRR > {KNOWN_ABOVE}", _SAYS, "higher")
LOG_KARR = Metric("log_karr", heading="", better="higher", range=(-inf, inf))
KARR_METRICS = (KARR, LOG_KARR)


def baselines(clozes: pl.DataFrame, n_failed: pl.DataFrame, **draws: Unpack[Draws]) -> pl.DataFrame:
    """The mean over facts of each measure of continuations (table ROWS).

    `precision_at_n` has a row for each n of NUMBERS in the grid; the other measures have
    one for the largest width, which is the variant (`width=5`). A cloze without a value
    counts in `n_failed`. Slices: each relation.
    """
    rows: list[Row] = []
    for metric, variant, values_of_metric in _by_metric(clozes):
        terms, counts = _cloze_terms(values_of_metric, n_failed, pl.col("value").mean())
        rows += ratio_rows(metric, terms, counts, **draws, variant=variant)
    return table(rows)


def _by_metric(clozes: pl.DataFrame) -> Iterator[tuple[str, str | None, pl.DataFrame]]:
    for n in _N_TOKENS:
        rows = clozes.filter(measure="precision", hyperparameters=f"n={n}")
        if rows.height:
            yield f"precision_at_{n}", None, rows
    for measure in ("rouge_l", "bertscore", "judge"):
        rows = clozes.filter(measure=measure)
        widths = rows["hyperparameters"].str.strip_prefix(_WIDTH).cast(pl.Int64).to_list()
        if widths:
            variant = f"{_WIDTH}{max(widths)}"
            yield measure, variant, rows.filter(hyperparameters=variant)


def karr(clozes: pl.DataFrame, n_failed: pl.DataFrame, **draws: Unpack[Draws]) -> pl.DataFrame:
    """`karr`, the share of known facts, and `log_karr`, the mean of ln KaRR (table ROWS).

    `clozes` comes from `of_karr`. A cloze without a value counts in `n_failed`. Slices: each
    relation.

    >>> clozes = pl.DataFrame({
    ...     "relation_id": ["P36"] * 3, "pair_id": ["t", "t", "u"], "value": [40.0, 10.0, 1.0]
    ... })
    >>> none = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})
    >>> rows = karr(clozes, none, seed=1, n_rounds=10).filter(pl.col("slice").is_null())
    >>> rows.select("metric", pl.col("value").round(3), "n").rows()
    [('karr', 0.5, 3), ('log_karr', 1.609, 3)]
    """
    mean, rows = pl.col("value").mean(), []
    for metric, of_fact in ((KARR, mean > KNOWN_ABOVE), (LOG_KARR, mean.log())):
        terms, counts = _cloze_terms(clozes, n_failed, of_fact)
        rows += ratio_rows(metric.name, terms, counts, **draws)
    return table(rows)


def _cloze_terms(
    clozes: pl.DataFrame, n_failed: pl.DataFrame, of_fact: pl.Expr
) -> tuple[pl.DataFrame, Counts]:
    """The terms of a mean over facts of their clozes; a cloze without a value has failed."""
    defined, absent = clozes.drop_nulls("value"), clozes.filter(pl.col("value").is_null())
    absent_counts = absent.group_by("relation_id").agg(n_failed=pl.len().cast(pl.Int64))
    failed = pl.concat([n_failed, absent_counts], how="vertical_relaxed")
    return pair_terms(defined, of_fact), count_answers(defined, failed)
