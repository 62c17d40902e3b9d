"""KAMEL's answers: one text of several answers → the set of them, to be compared as they are."""

from typing import Literal

import polars as pl

Matching = Literal["strict", "paper"]

SEPARATOR = ";"
END = "%"
# What is no letter, mark, number or white space.
_SPECIAL = r"[^\p{L}\p{M}\p{N}\s]"


def answer_set(text: pl.Expr) -> pl.Expr:
    r"""The distinct answers in a text as the authors' scorer reads it: String to List(String).

    That is without outer white space of the whole text, lowercase, every "%" removed, split at ";",
    and no answer stripped, so that a second answer keeps its space and matches no label. They stand
    in their order; equal answers count once. Null to null.

    Source: KAMEL, section 3.2, "Evaluation Metrics".

    >>> texts = pl.DataFrame({"text": [" English; Français!;% 1", "1,000", ";%", None]})
    >>> texts.select(answer_set(pl.col("text")))["text"].to_list()
    [['english', ' français!', ' 1'], ['1,000'], [''], None]
    """
    whole = text.str.strip_chars().str.to_lowercase()
    parts = whole.str.replace_all(END, "", literal=True).str.split(SEPARATOR)
    return parts.list.unique(maintain_order=True)


def answer_forms(text: pl.Expr) -> pl.Expr:
    """Each answer in a text, read strictly: `full` with its special characters, `bare` without.

    Strictly is up to the first "%" or line end; split at ";"; lowercase, composed (NFC), without
    outer spaces. An answer of which nothing is left is none: whoever compares leaves it out.

    Source: KAMEL, section 3.2, "Evaluation Metrics".

    >>> texts = pl.DataFrame({"text": ["C++; 1,000%"]})
    >>> texts.select(answer_forms(pl.col("text")))["text"].to_list()
    [[{'full': 'c++', 'bare': 'c'}, {'full': '1,000', 'bare': '1000'}]]
    """
    line = text.str.extract(r"^([^%\r\n]*)").str.to_lowercase()
    # Split first: composing turns the Greek question mark into the separator.
    composed = pl.element().str.normalize("NFC")
    full, bare = (
        each.str.strip_chars() for each in (composed, composed.str.replace_all(_SPECIAL, ""))
    )
    return line.str.split(SEPARATOR).list.eval(pl.struct(full=full, bare=bare))
