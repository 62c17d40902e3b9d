"""Labels and texts as they are compared when a set is made: which names which, in which script."""

import re
import unicodedata

# How the letters of a language are named in Unicode; of a language without an entry any will do.
_SCRIPTS: dict[str, tuple[str, ...]] = {
    "ar": ("ARABIC",),
    "ja": ("HIRAGANA", "KATAKANA", "CJK", "HALFWIDTH KATAKANA"),
    "ko": ("HANGUL",),
    "zh": ("CJK",),
    **dict.fromkeys(("bg", "ru", "uk"), ("CYRILLIC",)),
    **dict.fromkeys(("de", "en", "es", "fr", "it", "nl", "pl", "pt", "tr"), ("LATIN",)),
}
_WITHOUT_BLANKS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR")


def plain(text: str | None) -> str:
    """A text as it is compared with others."""
    return " ".join(unicodedata.normalize("NFKC", text or "").casefold().split())


def names(text: str, label: str) -> bool:
    """Whether a label stands in a text: as whole words, where its script has blanks between them.

    >>> names("george bush", "us"), names("tom mexico city", "mexico"), names("東京都", "東京")
    (False, True, True)
    """
    if any(unicodedata.name(each, "").startswith(_WITHOUT_BLANKS) for each in label):
        return label in text
    return bool(label) and re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text) is not None


def foreign(text: str, language: str) -> bool:
    """Whether a text has letters, and none of the script of its language.

    >>> foreign("Paris", "ja"), foreign("DNA鑑定", "ja"), foreign("1984", "ja")
    (True, False, False)
    """
    scripts = _SCRIPTS.get(language)
    letters = [unicodedata.name(each, "") for each in text if each.isalpha()]
    return scripts is not None and bool(letters) and not any(n.startswith(scripts) for n in letters)
