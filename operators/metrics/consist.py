"""Consist: how often two prompts of a pair get matching answers."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from operators.matching.key import key_length
from operators.matching.match import contains
from operators.metrics.terms import pair_terms, ratio

By = Literal["match", "equality"]
_COMPARISONS_PER_BLOCK = 4_000_000


def consist(answers: pl.DataFrame, *, by: By = "match") -> float | None:
    r"""Average over pairs the share (0 to 1) of unordered prompt pairs whose answers match.

    Pairs with fewer than two answered prompts are left out. `by` is "match" (one answer contains
    the other) or "equality" (encoder models: the same token). An empty answer (null key) matches
    nothing, not even another one. Needs the columns relation_id, pair_id and key.

    Source: BELIEF, section 2.3, equation 1, and BELIEF-ICL, section 3.2, item 2. The equation
    sums over ordered pairs but divides by the number of unordered ones: this is the unordered
    share.

    >>> answers = pl.DataFrame({
    ...     "relation_id": ["P1"] * 4,
    ...     "pair_id": ["t1", "t1", "t1", "t2"],
    ...     "key": ["\x1fguitar\x1f", "\x1fa\x1fguitar\x1f", "\x1fpiano\x1f", "\x1fdrum\x1f"],
    ... })
    >>> consist(answers)
    0.3333333333333333
    >>> consist(answers, by="equality")
    0.0
    """
    return ratio(consist_terms(answers, by=by))


def pair_consist(answers: pl.DataFrame, *, by: By = "match") -> pl.DataFrame:
    """Give each pair with two prompts or more its consistency: relation_id, pair_id, consist."""
    terms = consist_terms(answers, by=by)
    return terms.select("relation_id", "pair_id", consist="numerator")


def consist_terms(answers: pl.DataFrame, *, by: By = "match") -> pl.DataFrame:
    """Give each pair with two prompts or more its consistency, over 1."""
    counts = _answer_counts(answers)
    same = pl.when(pl.col("key").is_not_null()).then(_unordered(pl.col("n")))
    found = counts.with_columns(n_matches=same.fill_null(0))
    if by == "match":
        found = found.with_columns(pl.col("n_matches") + _containments(counts))
    n_pairs = _unordered(pl.sum("n"))
    terms = pair_terms(found, pl.sum("n_matches") / n_pairs, n_pairs > 0)
    return terms.filter(pl.col("denominator") > 0)


def _answer_counts(answers: pl.DataFrame) -> pl.DataFrame:
    # Sorted so that the answers which one answer can contain, the ones of fewer lemmas, stand
    # before it in its pair, side by side.
    counts = answers.group_by("relation_id", "pair_id", "key").agg(n=pl.len().cast(pl.Int64))
    lengths = counts.with_columns(n_lemmas=key_length(pl.col("key")))
    return lengths.sort("relation_id", "pair_id", "n_lemmas", nulls_last=True)


def _unordered(n: pl.Expr) -> pl.Expr:
    return n * (n - 1) // 2


def _containments(counts: pl.DataFrame) -> pl.Series:
    """For each distinct answer, the prompt pairs in which it contains a shorter answer."""
    first, n_shorter = _shorter_answers(counts)
    parts = [
        _block_containments(counts, first, n_shorter, start, stop)
        for start, stop in _blocks(n_shorter)
    ]
    return pl.Series(np.concatenate(parts) if parts else [], dtype=pl.Int64)


def _shorter_answers(counts: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each row's pair, and how many rows from there have fewer lemmas."""
    pair = ("relation_id", "pair_id")
    # The index is a column of its own: an int_range inside `over` would count within the pair.
    ranked = counts.with_row_index("row").select(
        first=pl.col("row").min().over(pair).cast(pl.Int64),
        n_shorter=(pl.col("n_lemmas").rank("min").over(pair).cast(pl.Int64) - 1).fill_null(0),
    )
    return ranked["first"].to_numpy(), ranked["n_shorter"].to_numpy()


def _blocks(n_shorter: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Cut the rows into runs of about as many comparisons as fit in memory."""
    block = np.cumsum(n_shorter) // _COMPARISONS_PER_BLOCK
    edges = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(block)]
    return pairwise(edges)


def _block_containments(
    counts: pl.DataFrame,
    first: NDArray[np.int64],
    n_shorter: NDArray[np.int64],
    start: int,
    stop: int,
) -> NDArray[np.int64]:
    repeats = n_shorter[start:stop]
    longer = np.repeat(np.arange(start, stop), repeats)
    offset = np.arange(len(longer)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    shorter = first[longer] + offset
    keys, n = counts["key"], counts["n"].to_numpy()
    compared = pl.DataFrame({"a": keys.gather(longer), "b": keys.gather(shorter)})
    hit = compared.select(contains(pl.col("a"), pl.col("b"))).to_series().to_numpy()
    weights = n[longer] * n[shorter] * hit
    return np.bincount(longer - start, weights, minlength=stop - start).astype(np.int64)
