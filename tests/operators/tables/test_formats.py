"""Tables in LaTeX: what is escaped, and what comes back when it is read again."""

import re

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.tables.formats import latex

ESCAPES = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    "--": "–",
    "{}": "",
    **{rf"\{character}": character for character in "&%$#_{}"},
}
TOKEN = re.compile("|".join(re.escape(text) for text in [*ESCAPES, "$-$", "$+$", " & "]))
cells = st.text(st.sampled_from([*r"\~^&%$#_{}<>|–[*ab1.,/+é", " "]), min_size=1, max_size=8)


def read(tabular: str) -> list[list[str]]:
    """The cells of a tabular, as TeX would print them."""
    signs = {"$-$": "-", "$+$": "+", " & ": "\x1f"}
    lines = [line.removesuffix(r" \\") for line in tabular.splitlines() if line.endswith(r" \\")]
    return [
        TOKEN.sub(lambda match: {**ESCAPES, **signs}[match.group()], line).split("\x1f")
        for line in lines
    ]


@given(st.lists(st.tuples(cells, cells), max_size=4))
def test_latex_reads_back_as_the_table(rows: list[tuple[str, str]]) -> None:
    table = pl.DataFrame(rows, schema={"a_b": pl.String, "c": pl.String}, orient="row")
    expected = [["a_b", "c"], *([" ".join(cell.split()) for cell in row] for row in rows)]
    assert read(latex(table)) == expected


@given(st.lists(cells, min_size=1, max_size=4))
def test_latex_no_special_character_stands_bare(texts: list[str]) -> None:
    body = latex(pl.DataFrame({"x": texts})).split("\\midrule\n")[1].split("\\bottomrule")[0]
    for line in body.splitlines():
        assert not re.search(r"(?<!\\)[&%#_~^<>|]", line.removesuffix(r" \\"))


def test_latex_columns_of_numbers_stand_at_the_right() -> None:
    table = pl.DataFrame(
        {
            "text": ["4-template"],
            "share": [".1–.2"],
            "number": ["-.0131"],
            "several": [".1/–/.3"],
            "none": ["n/a"],
            "count": [6492800],
        }
    )
    assert r"{llrrrr}" in latex(table)


def test_latex_signs_of_numbers_are_not_hyphens() -> None:
    assert "$-$.0131/$+$.2" in latex(pl.DataFrame({"x": ["-.0131/+.2"]}))
    assert "4-template" in latex(pl.DataFrame({"x": ["4-template"]}))


def test_latex_empty_table_has_its_headings() -> None:
    assert read(latex(pl.DataFrame({"a": [], "b": []}))) == [["a", "b"]]
