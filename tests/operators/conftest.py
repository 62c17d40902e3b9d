"""Small facts: written out, and at random."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.schemas import empty

# A subject's names, and the labels of each of its objects.
Pair = tuple[list[str], list[list[str]]]
Relation = tuple[list[str], Mapping[str, Pair]]

QUESTIONS = ["Where is [X]? [Y].", "What has [X]? [Y]"]
STATEMENTS = ["[X] lies in [Y].", "[Y] has [X].", "[Y], [X] and [X] again: [Y]."]
# The same names in many pairs, so that texts repeat; some look like slots or back-references.
NAMES = ["A", "B", "Éire", "$1 Ke$ha", "[Y]"]


def table(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=empty(name).schema)


def template(relation: str, number: int, text: str) -> dict[str, Any]:
    return {
        "template_id": f"{relation}.{number:03d}",
        "relation_id": relation,
        "text": text,
        "origin": "paraphrase" if number else "manual",
        "group": 0,
        "style": "question" if "?" in text else "statement",
    }


def pair(relation: str, subject: str, names: list[str], labels: list[list[str]]) -> dict[str, Any]:
    return {
        "pair_id": f"{relation}.{subject}",
        "relation_id": relation,
        "subject_id": subject,
        "subjects": names,
        "objects": [{"object_id": f"O{i}", "labels": each} for i, each in enumerate(labels)],
        "split": None,
    }


def facts(relations: Mapping[str, Relation]) -> Facts:
    rows = relations.items()
    return Facts(
        table("relations", [{"relation_id": r, "label": r} for r in relations]),
        table("templates", [template(r, i, t) for r, (ts, _) in rows for i, t in enumerate(ts)]),
        table("pairs", [pair(r, s, *each) for r, (_, ps) in rows for s, each in ps.items()]),
    )


@pytest.fixture(scope="session")
def make_facts() -> Callable[[Mapping[str, Relation]], Facts]:
    """Facts from {relation: (templates, {subject: (names, labels of each object)})}."""
    return facts


@st.composite
def small_facts(draw: st.DrawFn, min_pairs: int = 1) -> Facts:
    def names() -> list[str]:
        return draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))

    def relation() -> Relation:
        question = draw(st.sampled_from(QUESTIONS))
        statements = draw(st.lists(st.sampled_from(STATEMENTS), unique=True))
        subjects = [f"Q{i}" for i in range(draw(st.integers(min_pairs, min_pairs + 3)))]
        objects = draw(st.integers(1, 2))
        pairs = {s: (names(), [names() for _ in range(objects)]) for s in subjects}
        return draw(st.permutations([question, *statements])), pairs

    return facts({f"P{i}": relation() for i in range(draw(st.integers(1, 3)))})


@pytest.fixture(scope="session")
def random_facts() -> Callable[..., st.SearchStrategy[Facts]]:
    """One to three relations of at least `min_pairs` pairs and a question template each."""
    return small_facts
