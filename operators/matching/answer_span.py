r"""The answer span of an open question's answer: its first line, without what stands around it."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from functools import lru_cache

import polars as pl

_LEAD = re.compile(
    r"\A(?:(?:the )?(?:correct |final |short )?answer(?: is|:)|(?:a|answer)\s*:)\s*", re.IGNORECASE
)
_MARKUP = re.compile(r"(?<!\w)[*_`#>]{1,3}\s?|(?<=\S)[*_`]{1,3}(?!\w)|</?[a-z]{1,10}>")
_QUOTES = "\"'“”„‘’«»‹›「」 \t"
_CLAUSE = re.compile(r"[.,;:!?]\s|\bbut\b")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def answer_span(text: str) -> str:
    r"""The first line of an answer, without a lead such as "Answer:", markup and quotation marks.

    A line with nothing else is no answer: the next one is.

    Source: the project's specification, *Open questions*.

    >>> answer_span("\n**Answer:** **\"Paris\"**\nQ: And Spain?"), answer_span("The answer is\n42.")
    ('Paris', '42.')
    """
    for line in text.strip().split("\n"):
        span = _MARKUP.sub("", line).strip()
        while (shorter := _LEAD.sub("", span)) != span:
            span = shorter.strip()
        if span := span.strip(_QUOTES):
            return span
    return ""


def add_spans(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `span`, the answer span of their `text`; equal texts are read once."""
    texts = rows["text"].unique()
    spans = pl.Series("span", map(answer_span, texts), pl.String)
    distinct = pl.DataFrame({"text": texts}).with_columns(spans)
    return rows.join(distinct, on="text", how="left", maintain_order="left")


def squad_words(text: str) -> list[str]:
    """The words of a text as SQuAD and Natural Questions normalise it.

    Lower case, NFKC, without punctuation and English articles.

    >>> squad_words("The Beatles' “Help!”")
    ['beatles', 'help']
    """
    folded = unicodedata.normalize("NFKC", text).lower()
    letters = (sign for sign in folded if unicodedata.category(sign)[0] not in "P")
    return _ARTICLES.sub(" ", "".join(letters)).split()


def token_f1(span: str, label: str) -> float:
    """The F1 of the words that two texts share (SQuAD; Rajpurkar et al. 2016, section 6.1).

    >>> round(token_f1("Barack Hussein Obama", "Barack Obama"), 2)
    0.8
    """
    first, second = squad_words(span), squad_words(label)
    n_shared = (Counter(first) & Counter(second)).total()
    return 2 * n_shared / (len(first) + len(second)) if n_shared else float(first == second)


def is_refusal(span: str, refusals: Collection[str]) -> bool:
    """Whether a span is empty, or a refusal, or has a clause that begins with one of several words.

    >>> is_refusal("I don’t know.", ["i don't know"]), is_refusal("Unknown Pleasures", ["unknown"])
    (True, False)
    """
    words = _simplify(span)
    if not words:
        return True
    clauses = [f"{_simplify(clause)} " for clause in _CLAUSE.split(span)]
    return any(
        words == refusal
        or (" " in refusal and any(clause.startswith(f"{refusal} ") for clause in clauses))
        for refusal in map(_simplify, refusals)
    )


@lru_cache(maxsize=1024)
def _simplify(text: str) -> str:
    """The words of a text in lower case, without apostrophes and marks, with one blank between."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return " ".join(re.findall(r"\w+", re.sub(r"['’‘`]", "", folded)))
