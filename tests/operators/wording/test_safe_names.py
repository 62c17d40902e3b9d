"""Names: what leaves its folder, is hidden, or falls together with another is refused."""

import itertools

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts, check_facts
from factsweep.operators.datasets.myriadlama import facts_from_rows, rows_from_facts
from factsweep.operators.errors import InputError
from factsweep.operators.wording import safe_names
from tests.messages import naming

UNFIT = [
    *("", " ", ".", "..", "../x", "a/b", "/a", "a\\b", "a:b", ".P36", " P36", "P36 "),
    *("a\x00", "a\nb", "a\x7f", "a\u200b", "a\u202eb", "a\u2028", "\ud800", "x" * 121, "é" * 61),
]
FIT = ["P36", "place of birth", "located in - physical", "日本", "Café", "a.b", "x" * 120, "50 %"]


@pytest.mark.parametrize("name", UNFIT)
def test_check_unfit_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=naming("model", "rename")):
        safe_names.check(name, "the model")


@pytest.mark.parametrize("name", ["a.b", ".P36", "P/36"])
def test_check_relation_unfit_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=naming("relation")):
        safe_names.check_relation(name)


def test_check_fit_names_are_taken() -> None:
    for name in FIT:
        safe_names.check(name, "the model")
    for name in ("demo", "night-2026-11-01/gpt2-mini", "to-a", "a/report"):
        safe_names.check_run(name)
    safe_names.check_apart(["P36", "P37", "P36"], "the runs")


@pytest.mark.parametrize(
    ("one", "other"),
    [("P36", "p36"), ("Straße", "STRASSE"), ("Caf\u00e9", "Cafe\u0301"), ("\u212b", "\u00c5")],
)
def test_check_apart_names_that_fall_together_are_refused(one: str, other: str) -> None:
    with pytest.raises(InputError, match=naming("runs", "differ")):
        safe_names.check_apart(["x", one, other], "the runs")


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "a//b", "/a", "a/", ".a", "a/.b"),
        *("report", "compare/x", "Report", "to", "a/to/b", "a/TO"),
    ],
)
def test_check_run_unfit_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=naming("run_name=", "give")):
        safe_names.check_run(name)


def test_compared_two_other_runs_have_another_folder() -> None:
    parts = ("a", "b", "a-b", "-", "to-a")
    runs = [*parts, *("/".join(two) for two in itertools.product(parts, repeat=2))]
    pairs = list(itertools.product(runs, repeat=2))
    assert len({safe_names.comparison_folder(*pair) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize("ids", [["a", "a"], ["a", ""], ["a\nb"], ["x" * 1001]])
def test_check_ids_unfit_are_refused(ids: list[str]) -> None:
    with pytest.raises(InputError, match=naming("pair")):
        safe_names.check_ids(pl.Series(ids), "the pair")


@pytest.mark.parametrize("relation_id", [".P36", "P.36", "P36 ", "a\\b", "P\u200b36"])
def test_facts_of_a_relation_whose_name_is_unfit_are_refused(mini: Facts, relation_id: str) -> None:
    rows = rows_from_facts(mini).with_columns(rel_uri=pl.col("rel_uri").replace("P36", relation_id))
    with pytest.raises(InputError, match=naming("relation")):
        facts_from_rows(rows.lazy())


@pytest.mark.parametrize(
    ("uri", "words"),
    [("p36", ("P36", "p36")), ("x/P36", ("rel_uri", "'P36'", "'x/P36'", "relation P36"))],
)
def test_facts_of_relations_that_fall_together_are_refused(
    mini: Facts, uri: str, words: tuple[str, ...]
) -> None:
    rows = rows_from_facts(mini).with_columns(rel_uri=pl.col("rel_uri").replace("P37", uri))
    with pytest.raises(InputError, match=naming(*words)):
        facts_from_rows(rows.lazy())


def test_facts_with_an_id_twice_are_refused(mini: Facts) -> None:
    twice = pl.concat([mini.pairs, mini.pairs.head(1)])
    with pytest.raises(InputError, match=naming("pair", "twice", "leave")):
        check_facts(Facts(mini.relations, mini.templates, twice))
