"""KAMEL's answers: one text of several answers → the set of them, to be compared as they are."""

from typing import Literal

import polars as pl

Matching = Literal["strict", "paper"]

SEPARATOR = ";"
END = "%"
# What is no letter, mark, number or white space.
_SPECIAL = r"[^\p{L}\p{M}\p{N}\s]"


def answer_set(text: pl.Expr, matching: Matching = "strict") -> pl.Expr:
    r"""The distinct answers in a text, in their order: String to List(String), null to null.

    strict: up to the first "%" or line end; split at ";"; lowercase, composed (NFC), without
    special characters and outer spaces; an answer of which nothing is left is none.

    paper: as the authors' scorer does it: lowercase, every "%" removed, split at ";", and nothing
    stripped, so that a second answer keeps its space and matches no label. The one space before the
    whole text is the prompt's, which ends at the question mark, and is dropped.

    Source: KAMEL, section 3.2, "Evaluation Metrics".

    >>> texts = pl.DataFrame({"text": [" English; Français!;% 1", "1,000", ";%", None]})
    >>> texts.select(answer_set(pl.col("text")))["text"].to_list()
    [['english', 'français'], ['1000'], [], None]
    >>> texts.select(answer_set(pl.col("text"), "paper"))["text"].to_list()
    [['english', ' français!', ' 1'], ['1,000'], [''], None]
    """
    if matching == "paper":
        whole = text.str.strip_prefix(" ").str.to_lowercase()
        parts = whole.str.replace_all(END, "", literal=True).str.split(SEPARATOR)
        return parts.list.unique(maintain_order=True)
    line = text.str.extract(r"^([^%\r\n]*)").str.to_lowercase()
    # Split first: composing turns the Greek question mark into the separator.
    part = pl.element().str.normalize("NFC").str.replace_all(_SPECIAL, "").str.strip_chars()
    answers = line.str.split(SEPARATOR).list.eval(part)
    return answers.list.filter(pl.element() != "").list.unique(maintain_order=True)
