"""Cells of several answers: they are found, split on request, and stay whole otherwise."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.plain_tables import check_aliases, several, split
from factsweep.operators.errors import InputError
from tests.messages import naming

NAMES = st.lists(st.text("abc de", min_size=1).filter(str.strip), min_size=1, max_size=4)


@given(st.lists(NAMES, min_size=1, max_size=4), st.sampled_from([";", "|", " / ", "; "]))
def test_split_gives_the_names_that_were_joined(names: list[list[str]], separator: str) -> None:
    cells = [separator.join(row) for row in names]
    rows = split(pl.DataFrame({"subject": range(len(cells)), "object": cells}), separator)
    stripped = [(n, name.strip()) for n, row in enumerate(names) for name in row]
    assert rows.rows() == stripped


def test_split_takes_ids_along_and_makes_lists_of_aliases() -> None:
    cells = {
        "object": ["a;b", "c"],
        "object_id": ["1;2", "3"],
        "object_aliases": ["x; y", '["z;"]'],
    }
    assert split(pl.DataFrame(cells), ";").rows() == [
        *(("a", "1", ["x", "y"]), ("b", "2", ["x", "y"]), ("c", "3", ["z;"])),
    ]
    with pytest.raises(InputError, match=naming("row 0", "object", "2 parts", "object_id")):
        split(pl.DataFrame({"object": ["a;b"], "object_id": ["1"]}), ";")


def test_several_counts_cells_once_and_names_the_first_three() -> None:
    cells = ["A; B", "AC/DC", "C|D", "E / F", "A; B", "G ;H", "Yahoo!;", '["a;b"]', None]
    (sentence,) = several(pl.LazyFrame({"object": cells}), "separator=", None)
    assert sentence.startswith("4 cells seem to hold several answers (row 0: object 'A; B', row 2:")
    assert "separator=';'" in sentence
    assert not several(pl.LazyFrame({"object": ["A; B"], "note": "a;b"}), "separator=", ";")


def test_check_aliases_that_are_no_list_offers_the_list_and_the_split() -> None:
    rows = pl.LazyFrame({"object_aliases": ["", '["x"]', "Paname; Lutèce"]})
    with pytest.raises(InputError, match=naming("row 2", '["Paname", "Lutèce"]', "separator=';'")):
        check_aliases(rows, "separator=")
