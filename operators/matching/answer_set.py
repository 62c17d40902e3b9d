"""KAMEL's answers: one text of several answers → the set of them, compared without lemmas."""

from typing import Literal

import polars as pl

from factsweep.operators.matching import text_folding

Matching = Literal["strict", "paper"]

SEPARATOR = ";"
END = "%"
# All but letters, marks, numbers and white space; NFKC writes ½ with "⁄", and `compose` ⁶ with "^".
_SPECIAL = r"[^\p{L}\p{M}\p{N}\s⁄^]"
# Numbers of a list that begins with 1, which are no part of its answers.
_FIRST_ITEM, _ITEM = (
    rf"({start})[\s\p{{P}}--;]*?{number}[.)\]][*_]*\s+([^\s;]*[\p{{L}}\p{{N}}])"
    for start, number in ((r"\A", "1"), (r"\A|;", r"\d{1,2}"))
)
# Marks around an answer.
_AROUND = "\"'“”„‟‚‘’‛«»‹›「」『』`´()[]{}<>*_~,!?:; \t"


def answer_set(text: pl.Expr) -> pl.Expr:
    r"""The distinct answers in a text as the authors' scorer reads it: String to List(String).

    Without outer white space of the whole text, lowercase, without "%", split at ";"; no answer is
    stripped, so a second answer keeps its space and matches no label. Equal answers count once.

    Source: KAMEL, section 3.2, "Evaluation Metrics".

    >>> texts = pl.DataFrame({"text": [" English; Français!;% 1", "1,000", ";%", None]})
    >>> texts.select(answer_set(pl.col("text")))["text"].to_list()
    [['english', ' français!', ' 1'], ['1,000'], [''], None]
    """
    stripped = text.str.strip_chars().str.to_lowercase()
    parts = stripped.str.replace_all(END, "", literal=True).str.split(SEPARATOR)
    return parts.list.unique(maintain_order=True)


def has_answers(texts: pl.Series) -> pl.Series:
    """Whether each text has an answer when it is read strictly."""
    full = pl.element().struct.field("full")
    answers = answer_forms(pl.col("text")).list.eval(full != "")
    return texts.to_frame("text").select(answers.list.any()).to_series()


def without_marks_around(full: pl.Expr) -> pl.Expr:
    """An answer without quotation marks, brackets and the like, nor a final stop or ellipsis."""
    stopped = full.str.strip_chars(_AROUND).str.replace(r"([^.])(?:\.|\.{3,})$", "${1}")
    return stopped.str.strip_chars(_AROUND)


def answer_forms(text: pl.Expr) -> pl.Expr:
    """Each answer in a text, read strictly: `full` with its special characters, `bare` without.

    Strictly is up to the first "%" or line end, without markup; split at ";"; lowercase, in NFKC,
    without outer spaces and invisible characters. Callers drop empty answers.

    Source: KAMEL, section 3.2, "Evaluation Metrics".

    >>> texts = pl.DataFrame({"text": ["C++; 1,000%"]})
    >>> texts.select(answer_forms(pl.col("text")))["text"].to_list()
    [[{'full': 'c++', 'bare': 'c'}, {'full': '1,000', 'bare': '1000'}]]
    """
    line = text_folding.strip_bullets(text_folding.strip_markup(text.str.extract(r"^([^%\r\n]*)")))
    is_list = line.str.contains(_FIRST_ITEM)
    line = pl.when(is_list).then(line.str.replace_all(_ITEM, "${1}${2}")).otherwise(line)
    # Split first: composing turns the Greek question mark into the separator.
    composed = text_folding.fold_case(text_folding.compose(pl.element()))
    full = composed.str.strip_chars()
    bare = composed.str.replace_all(_SPECIAL, "").str.strip_chars()
    return line.str.split(SEPARATOR).list.eval(pl.struct(full=full, bare=bare))
