"""A lemma list as one string, so that "is a sublist of" becomes "is a substring of"."""

import polars as pl

# The unit separator counts as white space for spaCy's tokenizer, so no lemma contains it.
SEPARATOR = "\x1f"


def key(lemmas: pl.Expr) -> pl.Expr:
    r"""Join a lemma list into its key; null for a null or an empty list.

    A separator stands around every lemma: "b is a contiguous sublist of a" is then "the key of a
    contains the key of b", and "art" is not found in "party". The column keeps its name.

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
    r"""Write keys as people read them: lemmas with spaces between; null for a null key.

    >>> keys = pl.DataFrame({"key": ["\x1fnew\x1fyork\x1f", None]})
    >>> keys.select(words(pl.col("key")))["key"].to_list()
    ['new york', None]
    """
    return keys.str.strip_chars(SEPARATOR).str.replace_all(SEPARATOR, " ", literal=True)
