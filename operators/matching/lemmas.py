"""Lemma lists as keys, and which answers are right: one list contains another.

A key is a lemma list as one string, with a separator around every lemma, so that Polars finds
contiguous sublists as substrings, and "art" is not found in "party".
"""

import polars as pl

# The unit separator counts as white space for spaCy's tokenizer, so no lemma contains it.
SEPARATOR = "\x1f"
_ANSWER = ("pair_id", "key")


def key(lemmas: pl.Expr) -> pl.Expr:
    r"""Join a lemma list into its key, under its name; null for a null or an empty list.

    >>> lemmas = pl.Series("lemmas", [["new", "york"], ["york"], [], None])
    >>> lemmas.to_frame().select(key(pl.col("lemmas"))).to_series().to_list()
    ['\x1fnew\x1fyork\x1f', '\x1fyork\x1f', None, None]
    """
    joined = pl.concat_str(pl.lit(SEPARATOR), lemmas.list.join(SEPARATOR), pl.lit(SEPARATOR))
    return pl.when(lemmas.list.len() > 0).then(joined).name.keep()


def key_length(keys: pl.Expr) -> pl.Expr:
    """Count the lemmas of a key; null for a null key."""
    return keys.str.count_matches(SEPARATOR, literal=True).cast(pl.Int64) - 1


def words(keys: pl.Expr) -> pl.Expr:
    r"""Write keys with spaces between the lemmas; null for a null key.

    >>> keys = pl.DataFrame({"key": ["\x1fnew\x1fyork\x1f", None]})
    >>> keys.select(words(pl.col("key")))["key"].to_list()
    ['new york', None]
    """
    return keys.str.strip_chars(SEPARATOR).str.replace_all(SEPARATOR, " ", literal=True)


def contains(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    r"""Whether b is a contiguous sublist of a; False where either is empty.

    Source: BELIEF-ICL, section 3.2 ("included in the other"). The paper is silent about empty
    texts: here an empty list contains nothing and is contained in nothing.

    >>> keys = pl.DataFrame({
    ...     "a": ["\x1fthe\x1fguitar\x1f", "\x1fparty\x1f", "\x1fguitar\x1f", None],
    ...     "b": ["\x1fguitar\x1f", "\x1fart\x1f", "\x1fthe\x1fguitar\x1f", None],
    ... })
    >>> keys.select(contains(pl.col("a"), pl.col("b"))).to_series().to_list()
    [True, False, False, False]
    """
    return a.str.contains(b, literal=True).fill_null(False)


def matches(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Whether a contains b or b contains a; False where either is empty.

    Source: BELIEF-ICL, section 3.2 ("bi-directional matching").
    """
    return contains(a, b) | contains(b, a)


def mark_correct(answers: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    r"""Add to each answer whether some object label of its pair is contained in it.

    `answers` has pair_id and key, `labels` one row per object label: pair_id, key. The new column
    `correct` is False for an empty answer and for a pair without labels.

    Source: BELIEF-ICL, section 3.2, item 1 (one-directional matching).

    >>> answers = pl.DataFrame({
    ...     "pair_id": ["t1", "t1", "t2"], "key": ["\x1fa\x1fguitar\x1f", "\x1fpiano\x1f", None]
    ... })
    >>> labels = pl.DataFrame({"pair_id": ["t1", "t2"], "key": ["\x1fguitar\x1f", "\x1fjapan\x1f"]})
    >>> mark_correct(answers, labels)["correct"].to_list()
    [True, False, False]
    """
    distinct = answers.select(_ANSWER).drop_nulls().unique()
    labelled = distinct.join(labels.select("pair_id", label="key"), on="pair_id")
    right = labelled.filter(contains(pl.col("key"), pl.col("label"))).select(_ANSWER).unique()
    right = right.with_columns(correct=pl.lit(True))
    joined = answers.join(right, on=_ANSWER, how="left", maintain_order="left")
    return joined.with_columns(pl.col("correct").fill_null(False))
