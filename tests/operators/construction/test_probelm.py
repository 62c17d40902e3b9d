"""PRobELM made from two small snapshots whose right answer can be seen by eye."""

from collections import Counter
from itertools import product

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.construction.probelm import (
    LABELS,
    SUBCLASS_OF,
    TRIPLES,
    BuiltGroups,
    Relation,
    build,
    frequencies,
    is_paraphrase,
)
from factsweep.operators.datasets.probelm import (
    Prompt,
    candidates,
    facts_from_files,
    file_of_prompts,
    file_of_rows,
)
from factsweep.operators.errors import InputError
from tests.messages import naming

EATS = Prompt("eats", "<subject> eats <object>.", "What? <subject> <object>.", "object")
HUNTS = Prompt("hunts", "<subject> hunts <object>.", "Who? <object> <subject>.", "subject")

Triple = tuple[str, str, str]

# Pets: a cat, a dog, a rabbit, a goldfish. Two of them eat meat, one hay and one carrots.
KNOWN: list[Triple] = [
    *((pet, SUBCLASS_OF, "pet") for pet in ("cat", "dog", "rabbit", "goldfish")),
    *((food, SUBCLASS_OF, "food") for food in ("milk", "meat", "hay", "carrots")),
    ("tree", SUBCLASS_OF, "plant"),
    ("dog", "eats", "meat"),
    ("goldfish", "eats", "meat"),
    ("rabbit", "eats", "hay"),
    ("rabbit", "eats", "carrots"),
    ("tree", "eats", "light"),
    ("cat", "hunts", "mice"),
]
NEW: Triple = ("cat", "eats", "milk")


def table(triples: list[Triple]) -> pl.DataFrame:
    return pl.DataFrame(triples, schema=TRIPLES, orient="row")


def labels(triples: list[Triple], **other: list[str]) -> pl.DataFrame:
    names = {entity: [entity] for subject, _, object_ in triples for entity in (subject, object_)}
    return pl.DataFrame(list({**names, **other}.items()), schema=LABELS, orient="row")


def made(
    *new: Triple,
    triples: list[Triple] = KNOWN,
    relation: Relation = Relation(EATS),  # noqa: B008
    n_alternatives: int = 3,
    max_similarity: float = 0.8,
    max_groups: int | None = None,
    seed: int = 0,
    **names: list[str],
) -> BuiltGroups:
    after = [*triples, *new]
    return build(
        table(triples),
        table(after),
        labels(after, **names),
        {"eats": relation},
        max_similarity=max_similarity,
        seed=seed,
        max_groups=max_groups,
        n_alternatives=n_alternatives,
    )


def entities(built: BuiltGroups, slot: str) -> list[tuple[str, int]]:
    positive = built.rows.row(0, named=True)
    other = "object" if slot == "subject" else "subject"
    is_same = pl.col(other) == positive[other]
    return built.rows.filter(is_same, pl.col("label") == 0).select(slot, "rank").rows()


def test_build_entity_that_stands_twice_in_labels_makes_no_group_twice() -> None:
    after = [*KNOWN, NEW]
    twice = pl.concat([labels(after), labels(after, cat=["feline"], meat=["flesh"])])
    args = (table(KNOWN), table(after)), {"eats": Relation(EATS)}
    first, second = (
        build(*args[0], names, args[1], max_similarity=0.8, seed=0, n_alternatives=3)
        for names in (labels(after), twice)
    )
    assert second.rows.equals(first.rows)


def test_build_what_most_siblings_have_stands_first() -> None:
    built = made(NEW)
    assert built.rows.row(0) == (0, "cat", "eats", "milk", 1, 1)
    assert entities(built, "object") == [("meat", 2), ("carrots", 3), ("hay", 4)]
    assert entities(built, "subject") == [("rabbit", 2), ("dog", 3), ("goldfish", 4)]
    assert built.dropped.is_empty()


def test_build_what_is_true_is_no_alternative_and_what_is_old_or_of_others_no_group() -> None:
    built = made(NEW, ("cat", "eats", "meat"), n_alternatives=2)
    by_object = {row["object"]: row for row in built.rows.filter(label=1).iter_rows(named=True)}
    assert set(by_object) == {"milk", "meat"}
    alternatives = built.rows.filter(subject="cat", label=0)["object"]
    assert set(alternatives) == {"hay", "carrots"}
    built = made(NEW, ("cat", "hunts", "birds"), ("dog", "eats", "meat"))
    assert built.rows["id"].n_unique() == 1


def test_build_a_paraphrase_is_dropped_and_counted() -> None:
    triples = [*KNOWN, ("rabbit", "eats", "carrot"), ("rabbit", "eats", "MILK!")]
    built = made(NEW, triples=triples, max_similarity=0.75)
    # carrot comes before carrots by its id, and "MILK!" is too near to what is plausible.
    assert entities(built, "object") == [("meat", 2), ("carrot", 3), ("hay", 4)]
    assert built.dropped.rows() == [("eats", "alternative", "near_paraphrase", 2)]


def test_build_general_queries_are_dropped_by_the_rule_of_their_relation() -> None:
    new = [NEW, ("rabbit", "eats", "milk")]
    built = made(*new, relation=Relation(EATS, max_answers=2), n_alternatives=1)
    assert built.rows.filter(label=1)["subject"].to_list() == ["cat"]
    assert built.dropped.rows() == [("eats", "triple", "general_query", 1)]
    relation = Relation(EATS._replace(asked="subject"), max_answers=1)
    with pytest.raises(InputError, match=naming("triple", "eats")):
        made(*new, relation=relation, n_alternatives=1)  # two eat milk


def test_build_too_few_alternatives_of_the_asked_slot_drop_the_group() -> None:
    built = made(NEW, ("tree", "eats", "milk"), n_alternatives=3)
    assert built.dropped.rows() == [("eats", "triple", "too_few_alternatives", 1)]
    with pytest.raises(InputError, match=naming("4 alternatives", "give")):
        made(NEW, n_alternatives=4)


def test_build_entity_without_label_is_dropped() -> None:
    built = made(NEW, ("dog", "eats", "nothing"), nothing=[], hay=[], n_alternatives=2)
    assert built.dropped.rows() == [("eats", "triple", "entity_without_label", 1)]
    assert entities(built, "object") == [("meat", 2), ("carrots", 3)]


def test_build_draws_groups_by_seed() -> None:
    new = [(pet, "eats", food) for pet in ("cat", "dog") for food in ("milk", "tofu", "rice")]
    drawn_groups = set()
    for seed in range(8):
        built = made(*new, max_groups=2, n_alternatives=1, seed=seed)
        assert built.rows["id"].n_unique() == 2
        assert built.dropped.rows() == [("eats", "triple", "not_drawn", 4)]
        drawn_groups.add(tuple(built.rows.filter(label=1).select("subject", "object").rows()))
        assert built.rows.equals(made(*new, max_groups=2, n_alternatives=1, seed=seed).rows)
    assert len(drawn_groups) > 1


def test_build_files_are_read_back_as_groups() -> None:
    built = made(NEW)
    files = {"112023.json": file_of_rows(built.rows), "prompts.csv": file_of_prompts([EATS, HUNTS])}
    ranked = candidates(facts_from_files(files))
    assert ranked.select("label", "rank").rows() == [
        ("milk", 1),
        ("meat", 2),
        ("carrots", 3),
        ("hay", 4),
    ]


def test_build_missing_column_is_refused() -> None:
    with pytest.raises(InputError, match=naming("column object_id")):
        build(
            table(KNOWN),
            table(KNOWN).drop("object_id"),
            labels(KNOWN),
            {"eats": Relation(EATS)},
            max_similarity=0.8,
            seed=0,
        )


def naive_objects(triple: Triple, facts: set[Triple]) -> Counter[str]:
    """Algorithm 1, line by line."""
    s, r, _ = triple
    parents = {o for (e, relation, o) in facts if relation == SUBCLASS_OF and e == s}
    siblings = {
        e for (e, relation, o) in facts if relation == SUBCLASS_OF and o in parents and e != s
    }
    return Counter(o for e in siblings for (e2, relation, o) in facts if (e2, relation) == (e, r))


ENTITIES = ["a", "b", "c", "d"]


@given(
    st.sets(
        st.sampled_from(list(product(ENTITIES, ["r", "q", SUBCLASS_OF], [*ENTITIES, "x"]))),
        min_size=1,
        max_size=25,
    )
)
def test_frequencies_are_those_of_the_algorithm(facts: set[Triple]) -> None:
    triples = [("a", "r", "b"), ("b", "q", "c")]
    for varied in ("object", "subject"):
        rows = frequencies(table(triples), table(sorted(facts)), varied)
        for s, r, o in triples:
            rows_of_triple = rows.filter(subject_id=s, relation_id=r, object_id=o)
            if varied == "object":
                expected = naive_objects((s, r, o), facts)
            else:  # the same with the slots of the relation exchanged
                turned = {(y, r, x) for x, relation, y in facts if relation == r}
                taxonomy = {fact for fact in facts if fact[1] == SUBCLASS_OF}
                expected = naive_objects((o, r, s), turned | taxonomy)
            assert dict(rows_of_triple.select("entity_id", "frequency").iter_rows()) == expected


def test_is_paraphrase_is_about_letters_not_case() -> None:
    for label, limit, expected in (
        ("Time Loop", 0.99, True),
        ("time", 0.5, False),
        ("tame loop", 0.8, True),
        ("x", 0.0, False),
    ):
        assert is_paraphrase(label, ["time loop"], limit) is expected, label
