"""Tables on a terminal: nothing is wider than it, and nothing is lost."""

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from factsweep.operators.tables.formats import markdown
from factsweep.pipeline.commands.arguments import shown

SETTINGS = ["zero-shot", "4-random", "4-relation", "4-template", "masked"]
CARD = pl.DataFrame(
    {"metric": ["Acc@1", "range draw=pair"]}
    | {name: [f".1{n}72 (.1328–.2000)", f".{n}594"] for n, name in enumerate(SETTINGS)}
)


@pytest.mark.parametrize("width", [50, 80, 100])
def test_wide_table_falls_into_parts_that_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = f"before\n\n{markdown(CARD)}\nafter"
    lines = shown(text).split("\n")
    assert max(map(len, lines)) <= width
    assert (lines[0], lines[-1]) == ("before", "after")
    heads = [line for line in lines if line.startswith("| metric")]
    assert len(heads) == {50: 3, 80: 2, 100: 1}[width]
    assert all(any(name in head for head in heads) for name in SETTINGS)


def test_long_name_goes_on_in_the_next_line_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "fake-smollm2-135m-myriadlama-mini-4-template"
    row = {
        "artifact": "generations/5117f487de04d727 (open)",
        "MB": "0.05",
        "needed by": f"run {name}",
        "last used": "2026-11-23",
    }
    lines = shown(markdown(pl.DataFrame([row]))).split("\n")
    assert max(map(len, lines)) <= 80
    cells = [line.split("|") for line in lines if line.startswith("|")]
    assert cells[0][1].strip() == "artifact"
    assert len(cells[0]) == 6
    assert name in "".join(each[3].strip() for each in cells)


def test_each_part_of_a_table_names_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [
        {"setting": "zero-shot", "metric": metric, "estimate": "." + "1" * 20, "note": "b" * 20}
        for metric in ("Acc@1", "SD")
    ]
    lines = shown(markdown(pl.DataFrame(rows))).split("\n")
    heads = [line for line in lines if "| setting" in line]
    assert len(heads) == 2
    assert all("| metric" in head for head in heads)


def test_table_that_fits_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = markdown(CARD.select("metric", "zero-shot"))
    assert shown(text) == text


WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=12), max_size=8).map(" ".join)


@example([("", "a" * 12, "a a aaaaaa", "a" * 12, "a" * 12)])
@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS, WORDS), min_size=1, max_size=4))
def test_any_table_keeps_its_words(rows: list[tuple[str, ...]]) -> None:
    table = pl.DataFrame(rows, schema=["q", "r", "s", "t", "u"], orient="row")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "60")
        lines = shown(markdown(table)).split("\n")
    assert max(map(len, lines)) <= 60
    printed = " ".join(lines).replace("|", " ").split()
    first = {word for row in rows for word in row[0].split()}  # it may stand in each part
    given_words = sorted(word for row in rows for each in row[1:] for word in each.split())
    left = [word for word in printed if word in given_words]
    for word in given_words:
        assert word in left
        if word not in first:
            left.remove(word)


def test_ends_of_an_interval_stay_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["metric", "one", "other", "difference", "95 % interval", "p (Holm)", "Cohen's h"]
    table = pl.DataFrame(
        [["Acc@1", *[".7688"] * 3, "+.0528 to -.1589", ".0044", "+.2712"]], columns, orient="row"
    )
    lines = shown(markdown(table)).split("\n")
    assert max(map(len, lines)) <= 80
    assert sum("+.0528 to -.1589" in line for line in lines) == 1
