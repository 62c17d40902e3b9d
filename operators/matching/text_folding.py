r"""Texts in the form for comparison: one form of every character, without markup.

Labels, answers and samples all go through `fold`, so equal texts stay equal. Markup is replaced by
a blank, because it separates words. Nothing else is dropped: "C++ <3" and "a < b" keep their signs.
"""

from collections.abc import Mapping

import polars as pl

INVISIBLE = r"[\p{Cc}\p{Cf}\p{Co}\p{Default_Ignorable_Code_Point}--[\s\x1c-\x1f]]"
# Scripts that have no blanks between words.
BLANKLESS = r"\p{Han}\p{Hiragana}\p{Katakana}\u{30fc}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_PLAIN = r"\A[A-Za-z0-9 ,]*(?:[A-Za-z0-9]{2}\.)?\z"  # such texts only need their case folded

_MARKER_NAMES = (  # of special tokens, in all families of tokenizers
    "s|bos|eos|pad|unk|mask|sep|cls|eod|eop|eot|eom|end|start|user|assistant|system|human|bot|"
    r"model|endoftext|unused\d+|0x[0-9A-F]{2}|[a-z]+(?:_[a-z0-9]+)+"
)
SPECIAL_TOKEN = (
    r"(?i)</?[|｜][^<>|｜\s][^<>|｜\n]{0,40}(?:[|｜]?>|[|｜]?\z)|<[a-z_]{1,20}[|｜]>|<</?SYS>>|"
    rf"</?(?:{_MARKER_NAMES})>|\[/?(?:INST|CLS|SEP|PAD|UNK|BOS|EOS|EOT|[gs]MASK|TOOL_CALLS)\]"
)
_TAG_NAMES = (  # of HTML, and those in which models put their answers
    "think|thinking|answer|final|result|response|output|"
    "a|abbr|b|big|blockquote|body|br|center|cite|code|dd|del|div|dl|dt|em|figure|font|h[1-6]|hr|"
    "html|i|img|ins|kbd|li|mark|ol|p|pre|q|s|samp|small|span|strike|strong|sub|sup|table|tbody|td|"
    "th|thead|tr|tt|u|ul|var"
)
_ENTITIES = {
    "&lt;": "<",
    "&gt;": ">",
    "&quot;": '"',
    "&#34;": '"',
    "&apos;": "'",
    "&#39;": "'",
    "&nbsp;": " ",
}
# Replaced in this order.
_MARKUP: tuple[tuple[str, str], ...] = (
    (SPECIAL_TOKEN, " "),
    (r"(?i)(\p{N})<sup>", "${1}^"),
    (r"(?i)</?su[bp]>", ""),  # H<sub>2</sub>O
    (rf"(?is)<!--.*?-->|</?(?:{_TAG_NAMES})(?:\s[^<>]*)?/?>|</[a-z]*\z", " "),
    # A formula begins and ends without blanks, and no digit follows: "$5 and $6" is none.
    *(((r"(\A|[^\w$])\$\$?([^\s$](?:[^$\n]*[^\s$])?)\$\$?(\D|\z)", "${1} ${2} ${3}"),) * 2),
    (r"\\(?:[a-z]*box(?:ed)?|text\w*|math\w+|emph|underline|operatorname)\s*\{", " "),
    (r"\\[nrt](\P{L}|\z)", " ${1}"),  # a line end or tab in two characters
    # The target of a link, up to where the answer was cut.
    (
        r"(?i)\]\((?:[a-z][a-z0-9+.-]*:|www\.|[/#.])(?:[^()\s]|\([^()\s]*\))*"
        r'(?:\s"[^"]*")?\)?',
        "]",
    ),
)
# Bullets stand behind other marks, and before a letter or digit.
_BEFORE_MARK, _AFTER_MARK = r"[\s\p{P}~|`]*?", r"[*_]*\s+"
_BULLETS = rf"(?:{_BEFORE_MARK}(?:[-*+>•·‣◦▪▫■□●○►▶➤→⇒✓✔✅☑]|#{{1,6}}){_AFTER_MARK})*"
_LINE, _ITEM = r"(\A|\n)", r"(\S*[\p{L}\p{N}])"

_BEFORE_NFKC: tuple[tuple[str, str], ...] = (
    ("[\u00b4\u1ffd\u0384]", "'"),  # else a blank and an accent
    ("[™®©℠]", " "),
    (r"(\p{N})([¼-¾⅐-⅞])", "${1} ${2}"),  # 5½ is not 51/2
    (r"(\p{N})([⁰¹²³⁴-⁹⁻])", "${1}^${2}"),  # 10⁶ is not 106
)
_TO_ASCII: tuple[tuple[str, str], ...] = (
    ("[‘’‛ʼʻʹʽʾʿˈ′‵ꞌ׳]", "'"),
    ("[“”„‟‚«»‹›″‶〝〞〟「」『』《》〈〉״]", '"'),
    ("[—―⸺⸻]", " - "),
    (r"[\p{Pd}−⁃]", "-"),
    ("⁄", "/"),
)
# Where words end without a blank: "Paris.The", but not "Ph.D"; letters without case take any stop.
_UNSPACED: tuple[tuple[str, str], ...] = (
    (r"([^\s.]{2}|[^\s.\p{L}\p{M}])([.!?;:]+)(\p{Lu}[\p{Ll}\s'])", "${1}${2} ${3}"),
    (r"([\p{Lo}\p{M}])([.!?;:,،؛؟۔।॥。]+)(\p{Lo})", "${1}${2} ${3}"),
    (r"([\p{L}\p{M}]):([^\s/])", "${1}: ${2}"),
    (r"([^\s\p{L}\p{M}\p{N}/:<])/(\p{L})", "${1} ${2}"),
)
_SEPARATORS: tuple[tuple[str, str], ...] = (
    (r"([\p{L}\p{M}])`(\p{L})", "${1}'${2}"),  # Hawai`i
    (r"[\"()\[\]{}`\\;▁�]|\*{2,}|_{2,}|~{2,}|-{2,}|'{2,}", " "),
    (r"([^\s|])\|+", "${1} "),
    (r"\|+([^\s|])", " ${1}"),
    (r"([\p{L}\p{M}\p{N}])([~=→]+)", "${1} ${2}"),
    (r"([~=→])([\p{L}\p{M}\p{N}])", "${1} ${2}"),
)
_AT_EDGES = (
    (r"(\A|[^\p{L}\p{M}\p{N}])-+(\p{L})", "${1} ${2}"),
    (r"([\p{L}\p{M}\p{N}])-+([^\p{L}\p{N}]|\z)", "${1} ${2}"),
)
# Vowel signs of Arabic and Hebrew, and the stretching of letters.
_VOWEL_SIGNS = (
    r"[\u{591}-\u{5bd}\u{5bf}\u{5c1}\u{5c2}\u{5c4}\u{5c5}\u{5c7}\u{610}-\u{61a}\u{640}"
    r"\u{64b}-\u{652}\u{656}-\u{65f}\u{670}\u{6d6}-\u{6dc}\u{6df}-\u{6e4}\u{6e7}\u{6e8}"
    r"\u{6ea}-\u{6ed}]"
)
_ZEROS = "\u0660\u06f0\u0966\u09e6\u0e50\u0ed0\u1040\u17e0"  # of digits in other scripts
_DIGITS = {chr(ord(zero) + n): str(n) for zero in _ZEROS for n in range(10)}
_LETTERS: Mapping[str, Mapping[str, str]] = {
    "ar": _DIGITS | dict.fromkeys("أإآٱ", "ا"),
    "fa": _DIGITS | {"ي": "ی", "ك": "ک"},
    "ro": _DIGITS | {"ş": "ș", "ţ": "ț", "Ş": "Ș", "Ţ": "Ț"},  # cedillas of old fonts
}
_DOTLESS = ("az", "tr")  # i and İ are one letter, ı and I another


def fold(texts: pl.Series, language: str = "en") -> pl.Series:
    r"""Give each text the form in which it is compared; folding twice changes nothing.

    Invisible characters are removed; the rest is Unicode's NFKC, lowercase by the rules of the
    language. Apostrophes, quotation marks and dashes become ASCII. Markup becomes a blank.

    >>> fold(pl.Series(["**S\u00e3o\u00a0Paulo**</s>", "Stra\u00dfe", "C++ <3", None])).to_list()
    [' são paulo  ', 'strasse', 'c++ <3', None]
    """
    name = texts.name
    odd = (~texts.str.contains(_PLAIN)).fill_null(value=False).arg_true()
    if len(odd):
        texts = texts.clone().scatter(odd, _separate_words(texts.gather(odd), language))
    lowercase = fold_case(pl.col("text"), language)
    return texts.to_frame("text").select(lowercase).to_series().rename(name)


def compose(text: pl.Expr, language: str = "en") -> pl.Expr:
    """Give each character its form in NFKC; invisible characters and vowel signs are removed."""
    text = _replace_patterns(text.str.replace_all(INVISIBLE, ""), _BEFORE_NFKC).str.normalize(
        "NFKC"
    )
    letters = _LETTERS.get(language, _DIGITS)
    return text.str.replace_all(_VOWEL_SIGNS, "").str.replace_many(letters)


def fold_case(text: pl.Expr, language: str = "en") -> pl.Expr:
    """Lowercase by the rules of the language; "ß" is "ss", and a final sigma any sigma."""
    if language in _DOTLESS:
        text = text.str.replace_many({"İ": "i", "I": "ı"}).str.to_lowercase()
    else:
        text = text.str.to_lowercase().str.replace_all("ı", "i", literal=True)
    text = text.str.replace_many({"ß": "ss", "ς": "σ", "i\u0307": "i"})
    return text.str.normalize("NFC")


def strip_markup(text: pl.Expr) -> pl.Expr:
    r"""Remove special tokens, tags, commands of LaTeX, and the targets of links.

    >>> texts = pl.DataFrame({"text": [r"$\boxed{\text{Paris}}$", "<b>Lima</b><|im_end|>", "</3"]})
    >>> [text.strip() for text in texts.select(strip_markup(pl.col("text")))["text"]]
    ['Paris}}', 'Lima', '</3']
    """
    text = text.str.replace_all("&(?:amp;)+", "&").str.replace_many(_ENTITIES)
    return _replace_patterns(text, _MARKUP)


def strip_bullets(text: pl.Expr) -> pl.Expr:
    """Remove bullets. The number of an item stays a word, for "1. Division" is not "2. Division".

    >>> texts = pl.DataFrame({"text": ["- Paris", "1. Paris"]})
    >>> texts.select(strip_bullets(pl.col("text")))["text"].to_list()
    ['Paris', '1. Paris']
    """
    return text.str.replace_all(rf"{_LINE}{_BULLETS}{_ITEM}", "${1}${2}")


def _separate_words(texts: pl.Series, language: str) -> pl.Series:
    """The texts without markup and with blanks where words end."""
    text, rows = pl.col("text"), texts.to_frame("text")
    # Each step reads the text several times: it must be a column, not an expression.
    rows = rows.select(strip_markup(_replace_patterns(compose(text, language), _TO_ASCII)))
    rows = rows.select(strip_bullets(text))
    rows = rows.select(_replace_patterns(text, (*_UNSPACED, *_UNSPACED, *_SEPARATORS, *_AT_EDGES)))
    rows = rows.select(strip_bullets(text))  # of lines that other marks began
    if language != "en":  # spaCy's English rules do so, and know exceptions
        text = _replace_patterns(text, ((r"([\p{L}\p{M}\p{N}])[-/](\p{L})", "${1} ${2}"),) * 2)
    if language in _DOTLESS:  # a suffix stands behind it: İzmir'de
        text = _replace_patterns(text, ((r"([\p{L}\p{M}])'(\p{L})", "${1} ${2}"),) * 2)
    if language == "ko":  # a particle stands behind a word of another script
        text = text.str.replace_all(r"([\p{Latin}\p{N}])(\p{Hangul})", "${1} ${2}")
    return rows.select(text).to_series()


def _replace_patterns(text: pl.Expr, rules: tuple[tuple[str, str], ...]) -> pl.Expr:
    for pattern, replacement in rules:
        text = text.str.replace_all(pattern, replacement)
    return text
