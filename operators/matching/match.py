"""Whether two normalised texts match, as expressions over their keys."""

import polars as pl


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
    r"""Whether a contains b or b contains a; False where either is empty.

    Source: BELIEF-ICL, section 3.2 ("bi-directional matching").

    >>> keys = pl.DataFrame({
    ...     "a": ["\x1fguitar\x1f", "\x1fparty\x1f", None],
    ...     "b": ["\x1fthe\x1fguitar\x1f", "\x1fart\x1f", None],
    ... })
    >>> keys.select(matches(pl.col("a"), pl.col("b"))).to_series().to_list()
    [True, False, False]
    """
    return contains(a, b) | contains(b, a)
