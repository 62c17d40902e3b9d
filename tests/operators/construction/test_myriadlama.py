"""Sets like MyriadLAMA made from facts, a knowledge base, names and templates."""

from collections.abc import Callable
from itertools import product

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.construction.kamel import LABELS
from factsweep.operators.construction.myriadlama import FACTS, BuiltSet, build, count_missing
from factsweep.operators.construction.paraphrase import MANUAL, PARAPHRASES
from factsweep.operators.datasets.myriadlama import facts_from_rows
from factsweep.operators.errors import InputError
from tests.messages import naming

NAMES = {
    "S1": ["John Lennon", "Lennon"],
    "S2": ["Ringo Starr"],
    "O1": ["guitar"],
    "O2": ["piano", "pianoforte", " ", "piano"],
    "O3": ["drum kit", "drums"],
    "empty": [],
}
PLAYS = "[X] plays [Y]."
WHAT = "What does [X] play? [Y]."
MANUALS = [("P1303", PLAYS), ("P1303", WHAT)]


def triples(*rows: tuple[str, str, str]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=FACTS, orient="row")


def made(
    facts: list[tuple[str, str, str]],
    knowledge: list[tuple[str, str, str]] | None = None,
    paraphrases: list[tuple[str, str, str]] | None = None,
    manual: list[tuple[str, str]] = MANUALS,
    fits: Callable[[str], bool] | None = None,
) -> BuiltSet:
    return build(
        triples(*facts),
        pl.DataFrame(list(NAMES.items()), schema=LABELS, orient="row"),
        pl.DataFrame(manual, schema=MANUAL, orient="row"),
        knowledge=triples(*knowledge) if knowledge else None,
        paraphrases=pl.DataFrame(paraphrases, schema=PARAPHRASES, orient="row")
        if paraphrases
        else None,
        n_paraphrases=2,
        fits=fits,
    )


def objects(built: BuiltSet, subject: str) -> list[str]:
    (entities,) = built.facts.pairs.filter(subject_id=subject)["objects"].to_list()
    return [entity["object_id"] for entity in entities]


def test_build_extends_a_pair_by_what_else_the_knowledge_base_has() -> None:
    built = made(
        [("P1303", "S1", "O2")],
        [
            ("P1303", "S1", "O3"),
            ("P1303", "S1", "O1"),
            ("P1303", "S1", "O2"),
            ("P1303", "S2", "O3"),  # no pair of the facts
            ("P27", "S1", "O3"),  # another relation
        ],
    )
    assert built.facts.pairs["pair_id"].to_list() == ["P1303.S1"]
    assert objects(built, "S1") == ["O2", "O1", "O3"]


def test_build_names_are_the_first_labels_and_aliases_once_each() -> None:
    built = made([("P1303", "S1", "O2")])
    pair = built.facts.pairs.row(0, named=True)
    assert pair["subjects"] == ["John Lennon", "Lennon"]
    assert pair["objects"] == [{"object_id": "O2", "labels": ["piano", "pianoforte"]}]
    assert built.dropped.is_empty()
    rows = [("S1", ["John"]), ("O1", ["guitar"]), ("S1", ["Paul"])]
    twice = pl.DataFrame(rows, schema=LABELS, orient="row")
    manual = pl.DataFrame(MANUALS, schema=MANUAL, orient="row")
    built = build(triples(("P1303", "S1", "O1")), twice, manual)
    assert built.facts.pairs["subjects"].to_list() == [["John"]]


def test_build_unfit_triples_are_counted_by_reason() -> None:
    built = made(
        [
            ("P1303", "S1", "O1"),
            ("P1303", "S1", "O3"),
            ("P1303", "S1", "nameless"),
            ("P1303", "S1", "XMLSchema#decimal"),
            ("P1303", "nameless", "O1"),
            ("P1303", "S2", "empty"),
            ("P9", "S1", "O1"),  # has no template
        ],
        fits=lambda label: " " not in label,
    )
    assert built.dropped.rows() == [
        ("P1303", "pair", "no_object_left", 2),
        ("P1303", "triple", "literal", 1),
        ("P1303", "triple", "object_does_not_fit", 1),
        ("P1303", "triple", "object_without_label", 2),
        ("P1303", "triple", "subject_without_label", 1),
        ("P9", "pair", "relation_without_template", 1),
        ("P9", "triple", "relation_without_template", 1),
    ]
    assert built.facts.pairs["pair_id"].to_list() == ["P1303.S1"]


def test_build_paraphrases_follow_their_manual_template() -> None:
    paraphrases = [
        ("P1303", WHAT, "[X] plays what? [Y]."),
        ("P1303", PLAYS, "[X] performs on [Y]."),
        ("P1303", PLAYS, WHAT),  # is a manual template
        ("P1303", WHAT, "[X] performs on [Y]."),  # said under another one
    ]
    built = made([("P1303", "S1", "O1")], paraphrases=paraphrases)
    assert built.facts.templates.select(
        "template_id", "text", "origin", "group", "style"
    ).rows() == [
        ("P1303.000", PLAYS, "manual", 0, "statement"),
        ("P1303.001", "[X] performs on [Y].", "paraphrase", 0, "statement"),
        ("P1303.002", WHAT, "manual", 1, "question"),
        ("P1303.003", "[X] plays what? [Y].", "paraphrase", 1, "question"),
    ]
    assert built.missing.rows() == [("P1303", 2, 2, 2)]


def test_missing_says_how_many_paraphrases_each_template_lacks() -> None:
    built = made([("P1303", "S1", "O1")])
    assert built.missing.rows() == [("P1303", 2, 0, 4)]
    assert built.facts.templates["text"].to_list() == [PLAYS, WHAT]
    # Too many of one template make up for no other.
    groups = {"relation_id": ["P1"] * 5, "group": [0, 0, 0, 0, 1]}
    origins = ["manual", *["paraphrase"] * 3, "manual"]
    rows = count_missing(pl.DataFrame({**groups, "origin": origins}), n_paraphrases=2).rows()
    assert rows == [("P1", 2, 3, 2)]


@given(
    st.lists(
        st.sampled_from(list(product(["P1303", "P27"], ["S1", "S2"], ["O1", "O2", "O3"]))),
        min_size=1,
    ),
    st.lists(st.sampled_from(list(product(["P1303", "P27"], ["S1", "S2"], ["O1", "O2", "O3"])))),
)
def test_build_gives_back_what_its_rows_say(
    facts: list[tuple[str, str, str]], knowledge: list[tuple[str, str, str]]
) -> None:
    manual = [(r, t) for r in ("P27", "P1303") for t in (PLAYS, WHAT)]
    paraphrases = [(r, t, f"So: {t}") for r, t in manual]
    built = made(facts, knowledge, paraphrases, manual)
    reread = facts_from_rows(built.rows().lazy())
    key = ["relation_id", "template_id"]
    assert reread.templates.sort(key).equals(built.facts.templates.sort(key))
    assert reread.pairs.sort("pair_id").equals(built.facts.pairs.sort("pair_id"))
    expected = {
        (r, s): {o for table in (facts, knowledge) for a, b, o in table if (a, b) == (r, s)}
        for r, s, _ in facts
    }
    objects_by_pair = {
        (row["relation_id"], row["subject_id"]): {entity["object_id"] for entity in row["objects"]}
        for row in built.facts.pairs.iter_rows(named=True)
    }
    assert objects_by_pair == expected


def test_build_unfit_templates_and_facts_are_refused() -> None:
    with pytest.raises(InputError, match=naming("P1303", "template '[X] sings [Y].'")):
        made([("P1303", "S1", "O1")], paraphrases=[("P1303", "[X] sings [Y].", "a [X] [Y]")])
    with pytest.raises(InputError, match=naming("P1303.000", "[Y]")):
        made([("P1303", "S1", "O1")], manual=[("P1303", "[X] plays.")])
    with pytest.raises(InputError, match=naming("fact", "manual")):
        made([("P1303", "nameless", "O1")])
    with pytest.raises(InputError, match=naming("column object_id")):
        build(triples().drop("object_id"), LABELS.to_frame(), MANUAL.to_frame())
