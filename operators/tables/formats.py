"""Tables as CSV for spreadsheets, LaTeX and Markdown."""

import re
from functools import partial

import polars as pl


def csv(table: pl.DataFrame, *, digits: int | None = None) -> str:
    """The table as CSV; an apostrophe stands before a text that would be a formula (OWASP)."""
    text = pl.col(pl.String)
    is_number = text.str.contains(r"^[+-]\.?\d")
    is_formula = text.str.contains(r"^[=@+\-\t\r]") & ~is_number
    safe = pl.when(is_formula).then("'" + text).otherwise(text).name.keep()
    return table.with_columns(safe).write_csv(float_precision=digits)


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
# Numbers (several with slashes between them) and dashes, which are aligned to the right.
_NUMBERS = re.compile(r"(?:[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?%?|–|n/a)(?:/(?:[-+]?[\d,]*\.?\d+|–))*")
_SIGN = re.compile(r"(^|/)([-+])(?=[\d.])")


def latex(table: pl.DataFrame) -> str:
    r"""The table as a `tabular` of booktabs; a null is a dash, numbers are aligned to the right."""
    texts = table.select(pl.all().cast(pl.String).fill_null("–"))
    right = [all(map(_NUMBERS.fullmatch, texts[name])) for name in texts.columns]
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if is_number else 'l' for is_number in right)}}}",
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


_LAYOUT = partial(
    pl.Config,
    tbl_formatting="MARKDOWN",
    tbl_hide_dataframe_shape=True,
    tbl_hide_column_data_types=True,
    tbl_rows=-1,
    tbl_cols=-1,
    tbl_width_chars=-1,
    fmt_str_lengths=1000,
)


def markdown(table: pl.DataFrame) -> str:
    r"""The table in Markdown; a null is a dash, and what would be HTML or a column's end is text.

    >>> print(markdown(pl.DataFrame({"said": ["<b>a</b>", "a|b", None]})), end="")
    | said           |
    |----------------|
    | &lt;b>a&lt;/b> |
    | a\|b           |
    | –              |
    """
    text = pl.all().cast(pl.String).fill_null("–").str.replace_all("|", r"\|", literal=True)
    with _LAYOUT():
        return str(table.select(text.str.replace_all(r"<([A-Za-z/!?])", "&lt;$1"))) + "\n"
