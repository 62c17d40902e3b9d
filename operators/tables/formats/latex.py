"""A table in LaTeX, with the rules of the package booktabs."""

import re

import polars as pl

_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        # In TeX's own font encoding, OT1, these print as ¡, ¿ and —.
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **{character: rf"\{character}" for character in "&%$#_{}"},
    }
)
# Numbers, several with slashes between them, dashes: what is aligned to the right of its column.
_NUMBERS = re.compile(r"(?:[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?%?|–|n/a)(?:/(?:[-+]?[\d,]*\.?\d+|–))*")
_SIGN = re.compile(r"(^|/)([-+])(?=[\d.])")


def latex(table: pl.DataFrame) -> str:
    r"""The table as a `tabular`; a null is a dash, and columns of numbers are aligned to the right.

    >>> print(latex(pl.DataFrame({"PLM": ["BERT_base", "100 %"], "Ovconf": ["-.1119", None]})))
    \begin{tabular}{lr}
    \toprule
    PLM & Ovconf \\
    \midrule
    BERT\_base & $-$.1119 \\
    100 \% & -- \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    texts = table.select(pl.all().cast(pl.String).fill_null("–"))
    right = [all(map(_NUMBERS.fullmatch, texts[name])) for name in texts.columns]
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in right)}}}",
        r"\toprule",
        _line(texts.columns),
        r"\midrule",
        *map(_line, texts.iter_rows()),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return " & ".join(_cell(cell) for cell in cells) + r" \\"


def _cell(text: str) -> str:
    """The text, escaped; a number's sign is that of mathematics, not a hyphen."""
    escaped = " ".join(text.split()).translate(_SPECIAL)
    if _NUMBERS.fullmatch(text):
        return _SIGN.sub(r"\1$\2$", escaped)
    # An opening bracket after \\ or \toprule would be taken for their option.
    return "{}" + escaped if escaped.startswith(("[", "*")) else escaped
