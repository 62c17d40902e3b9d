"""The words of answers in the form in which `contains` compares them."""

import re
import unicodedata
from collections.abc import Iterable

import polars as pl

from factsweep.operators.matching.cldr import words as split_words
from factsweep.operators.matching.normalise import Normaliser

# In front of a word: not that of Vitamin A.
_ARTICLE = re.compile(r"\b(?:the|an|a)\s+(?=\w)", re.IGNORECASE)
_ONES = split_words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = split_words("twenty thirty forty fifty sixty seventy eighty ninety")
_NUMBERS = {word: n for n, word in enumerate(_ONES)} | {
    word: 10 * n for n, word in enumerate(_TENS, start=2)
}
_IRREGULAR = {
    "first": 1,
    "second": 2,
    "third": 3,
    "fifth": 5,
    "eighth": 8,
    "ninth": 9,
    "twelfth": 12,
}
_ORDINALS = {re.sub("y$", "ie", word) + "th": n for word, n in _NUMBERS.items()} | _IRREGULAR
_ORDINAL = re.compile(rf"\b(?:({'|'.join(_TENS)})[ -]+)?({'|'.join(_ORDINALS)})\b", re.IGNORECASE)
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}  # of other ordinals: th
_ABBREVIATIONS = {"co": "company", "corp": "corporation", "inc": "incorporated", "ltd": "limited"}
_ABBREVIATIONS |= {"st": "saint", "mt": "mount", "ft": "fort", "jr": "junior", "sr": "senior"}
_LETTERS = re.compile(r"[^\W\d_](?:\.[^\W\d_])+")  # j.r.r
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")

Words = tuple[str, ...]


def split_texts(normaliser: Normaliser, language: str, texts: Iterable[str]) -> dict[str, Words]:
    """The lemmas of texts without articles and accents, with numbers as digits.

    >>> split_texts(Normaliser(), "en", ["The twenty-first of J.R.R. Tolkien"])
    {'The twenty-first of J.R.R. Tolkien': ('21st', 'of', 'j', 'r', 'r', 'tolkien')}
    """
    series = pl.Series("text", [*texts], pl.String)
    readable = [_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text) for text in series]
    if language == "en":
        readable = [*map(_readable, readable)]
    lemmas = normaliser.normalise(pl.Series("text", readable, pl.String))
    return {
        text: tuple(as_digits(map(_without_accents, words or ()), language, are_words=True))
        for text, words in zip(series, lemmas.to_list(), strict=True)
    }


def as_digits(words: Iterable[str], language: str, *, are_words: bool = False) -> list[str]:
    """The words with written numbers below a hundred, and grouped ones, as digits.

    Where they `are_words` and no quantity, abbreviations are written out, and initials are parted.
    """
    digits: list[str] = []
    is_ten = False
    for word in words:
        number = _NUMBERS.get(word) if language == "en" else None
        if number is not None and is_ten and 0 < number < 10:
            digits[-1] = str(int(digits[-1]) + number)
        elif number is not None:
            digits.append(str(number))
        elif are_words and language == "en" and word in _ABBREVIATIONS:
            digits.append(_ABBREVIATIONS[word])
        elif are_words and _LETTERS.fullmatch(word):
            digits += word.split(".")
        else:
            digits.append(re.sub(r"(?<=\d),(?=\d{3})", "", word))
        is_ten = word in _TENS
    return digits


def _readable(text: str) -> str:
    """An English text without articles, with ordinals in digits, which are no numbers."""
    bare = _ARTICLE.sub("", _without_accents(text)).replace("&", " and ")
    return _ORDINAL.sub(_ordinal, bare)


def _ordinal(match: re.Match[str]) -> str:
    n = _NUMBERS.get((match[1] or "").lower(), 0) + _ORDINALS[match[2].lower()]
    return f"{n}{'th' if 10 < n < 20 else _ENDINGS.get(n % 10, 'th')}"


def _without_accents(word: str) -> str:
    parts = unicodedata.normalize("NFD", word)
    return "".join(sign for sign in parts if not unicodedata.combining(sign))
