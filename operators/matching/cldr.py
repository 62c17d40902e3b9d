"""Texts and names of languages as values are read from them, by Unicode's CLDR (Babel)."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

V = TypeVar("V")

# Letters and digits of scripts that put blanks between words, and letters alone.
_WITHOUT_BLANKS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
WORD, LETTER = rf"[^\W_{_WITHOUT_BLANKS}]", rf"[^\W\d_{_WITHOUT_BLANKS}]"
_INVISIBLE = re.compile(r"[\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SIGNS = str.maketrans("٫٬’ʼ−⁄İ", ".,''-/i")


class TextValue(NamedTuple, Generic[V]):
    """A value in a text: where it stands, and the ways in which it can be read."""

    start: int
    end: int
    readings: tuple[V, ...]


def fold_text(text: str) -> str:
    """A text in normal form NFKC without invisible characters, digits as in ASCII.

    >>> fold_text("８.８４９ km²"), fold_text("٣")
    ('8.849 km^2', '3')
    """
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda run: "^" + run[0].translate(_SUPERSCRIPTS), text)
    text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_SIGNS)
    return re.sub(r"[^\x00-\x7f]", lambda c: str(unicodedata.digit(c[0], c[0])), text)


def words(text: str) -> list[str]:
    """The words of a text, folded, in lower case and without digits."""
    return re.findall(r"[^\W\d_]+", fold_text(text).lower())


def blank_out(text: str, values: Iterable[TextValue[Any]]) -> str:
    """The text with blanks in place of values."""
    for start, end, _ in values:
        text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
    return text


def alternation(names: Iterable[str]) -> str:
    """A pattern of any of some names, the longest first."""
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))


@lru_cache(maxsize=32)
def locales(language: str) -> list[Any]:
    """The language as Babel knows it, if it does, then English."""
    from babel import Locale
    from babel.core import UnknownLocaleError

    babel_locales: list[Any] = []
    for name in dict.fromkeys((language.replace("-", "_"), "en", "en_GB")):
        try:
            babel_locales.append(Locale.parse(name))
        except (UnknownLocaleError, ValueError):
            continue
    return babel_locales
