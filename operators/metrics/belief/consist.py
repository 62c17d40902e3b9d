"""Consist: how often two prompts of a pair get matching answers."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.matching.lemmas import contains, key_length
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import pair_terms

By = Literal["match", "equality"]
_PAIR = ("relation_id", "pair_id")
_COMPARISONS_PER_BLOCK = 4_000_000


def consist_terms(
    answers: pl.DataFrame, *, by: By = "match", within: Sequence[str] = ()
) -> pl.DataFrame:
    r"""Give each pair the share (0 to 1) of its unordered prompt pairs whose answers match, over 1.

    `by` is "match" (one answer contains the other) or "equality" (encoder models: the same token).
    An empty answer matches nothing. Pairs of a single answer are left out. Only prompts that agree
    in the columns of `within` are compared.

    Source: BELIEF, section 2.3, equation 1 (which sums over ordered pairs, but divides by the
    number of unordered ones), and BELIEF-ICL, section 3.2, item 2.

    >>> ids = {"relation_id": ["P1"] * 3, "pair_id": ["t1"] * 3}
    >>> keys = ["\x1fguitar\x1f", "\x1fa\x1fguitar\x1f", "\x1fpiano\x1f"]
    >>> answers = pl.DataFrame({**ids, "key": keys})
    >>> [consist_terms(answers, by=by)["numerator"].item() for by in ("match", "equality")]
    [0.3333333333333333, 0.0]
    """
    return share_of_matches(match_counts(answers, by=by, within=within))


def share_of_matches(counts: pl.DataFrame) -> pl.DataFrame:
    """Turn the counts of `match_counts` into terms: the matching share of each pair, over 1."""
    compared = counts.filter(pl.col("n_compared") > 0)
    return pair_terms(compared, pl.sum("n_matches") / pl.sum("n_compared"), pl.lit(1.0))


def match_counts(
    answers: pl.DataFrame, *, by: By = "match", within: Sequence[str] = ()
) -> pl.DataFrame:
    """Count for each pair the unordered prompt pairs, and those whose answers match.

    Columns: relation_id, pair_id, n_matches, n_compared; arguments as of `consist_terms`.
    """
    pair, held = _numbered(answers, _PAIR), _numbered(answers, within)
    n_held = int(held.max(initial=0)) + 1
    counts = _answer_counts(pair * n_held + held, answers["key"])
    found = counts.with_columns(n_matches=_unordered(pl.col("n")) * pl.col("key").is_not_null())
    if by == "match":
        found = found.with_columns(pl.col("n_matches") + _containments(counts))
    groups = found.group_by("group").agg(pl.sum("n_matches"), n_compared=_unordered(pl.sum("n")))
    totals = groups.group_by(pair=pl.col("group") // n_held).agg(pl.sum("n_matches", "n_compared"))
    ids = answers.select(_PAIR).with_columns(pair=pl.Series(pair)).unique("pair")
    named = ids.join(totals, on="pair").with_columns(pl.col(_PAIR).cast(pl.String))
    return named.drop("pair").sort(_PAIR)


def _numbered(rows: pl.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """A number for each row, the same where the columns are the same.

    Millions of rows are grouped and sorted several times faster by one number than by texts.
    """
    number = np.zeros(rows.height, np.int64)
    for name in columns:
        codes = coded(rows[name]).to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1
        number = number * (codes.max(initial=0) + 1) + codes
    return number


def coded(values: pl.Series) -> pl.Series:
    """Texts as categories of their own; what is no text as it is."""
    kind = pl.Categorical(pl.Categories.random())
    return values.cast(kind) if values.dtype == pl.String else values


def _answer_counts(group: NDArray[np.int64], keys: pl.Series) -> pl.DataFrame:
    """How often each answer stands in each group: group, key, n, n_lemmas.

    The answers that one answer can contain, the ones of fewer lemmas, stand before it in its group,
    side by side; the empty one stands last.
    """
    rows = pl.DataFrame({"key": keys, "code": _numbered(keys.to_frame("key"), ["key"])})
    texts = rows.unique("code").with_columns(pl.col("key").cast(pl.String))
    lengths = texts.with_columns(n_lemmas=key_length(pl.col("key")))
    distinct = lengths.sort("n_lemmas", nulls_last=True)
    codes = rows["code"].to_numpy()
    place = np.zeros(codes.max(initial=0) + 1, np.int64)
    place[distinct["code"]] = np.arange(distinct.height)
    n_keys = max(1, distinct.height)
    cells = pl.Series("cell", group * n_keys + place[codes]).value_counts(name="n").sort("cell")
    answers = distinct.select("key", "n_lemmas")[cells["cell"] % n_keys]
    return answers.with_columns(group=cells["cell"] // n_keys, n=cells["n"].cast(pl.Int64))


def _unordered(n: pl.Expr) -> pl.Expr:
    return n * (n - 1) // 2


def _containments(counts: pl.DataFrame) -> pl.Series:
    """For each distinct answer, the prompt pairs in which it contains a shorter answer."""
    first = _run_starts(counts, "group")
    as_long = _run_starts(counts, "group", "n_lemmas")
    # From the first row of a row's group: those that have fewer lemmas.
    n_shorter = np.where(counts["n_lemmas"].is_null().to_numpy(), 0, as_long - first)
    parts = [
        _block_containments(counts, first, n_shorter, start, stop)
        for start, stop in _blocks(n_shorter)
    ]
    return pl.Series(np.concatenate(parts) if parts else [], dtype=pl.Int64)


def _run_starts(rows: pl.DataFrame, *columns: str) -> NDArray[np.int64]:
    """For each row of a sorted table, the first of the rows that agree with it in the columns."""
    values = pl.col(columns)
    starts = rows.select(pl.any_horizontal(values.ne_missing(values.shift()))).to_series()
    return np.maximum.accumulate(np.where(starts.to_numpy(), np.arange(rows.height), 0))


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


_SAYS = "share of pairs of prompts of a fact whose answers match"
CONSIST = Metric("consist", "Consist", _SAYS, "higher", terms=consist_terms)
