"""Small facts and answers: written out, and at random."""

from collections.abc import Callable, Mapping
from itertools import product
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


KEYS = [None, *("\x1f" + "\x1f".join(each) + "\x1f" for each in ("a", "b", "ab", "ba", "aba", "c"))]
ANSWERS = pl.Schema(
    {
        "relation_id": pl.String,
        "pair_id": pl.String,
        "template_id": pl.String,
        "subject_index": pl.UInt16,
        "key": pl.String,
        "n_lemmas": pl.UInt16,
        "correct": pl.Boolean,
    }
)
CALIBRATION = pl.Schema(
    {
        "relation_id": pl.String,
        "pair_id": pl.String,
        "prompt_id": pl.String,
        "confidence": pl.Float64,
        "correct": pl.Boolean,
    }
)

Prompt = tuple[int, int, int, int]
Answer = tuple[str | None, bool]

ANSWER = st.tuples(st.sampled_from(KEYS), st.booleans())


def answer_table(prompts: dict[Prompt, Answer]) -> pl.DataFrame:
    rows = [
        (f"P{r}", f"P{r}.Q{p}", f"P{r}.{t}", s, key, (key or "\x1f").count("\x1f") - 1, correct)
        for (r, p, t, s), (key, correct) in prompts.items()
    ]
    return pl.DataFrame(rows, schema=ANSWERS, orient="row")


@st.composite
def complete_tables(draw: st.DrawFn) -> pl.DataFrame:
    n_templates = draw(st.integers(1, 3))
    n_names = draw(
        st.dictionaries(
            st.tuples(st.integers(0, 1), st.integers(0, 3)), st.integers(1, 2), min_size=1
        )
    )
    prompts = [
        (*pair, template, name)
        for pair, n in n_names.items()
        for template, name in product(range(n_templates), range(n))
    ]
    answers = draw(st.lists(ANSWER, min_size=len(prompts), max_size=len(prompts)))
    return answer_table(dict(zip(prompts, answers, strict=True)))


def calibration_table(prompts: list[tuple[int, int, bool]]) -> pl.DataFrame:
    rows = [
        (f"P{relation}", f"P{relation}.Q{i}", f"p{i}", percent / 100, correct)
        for i, (relation, percent, correct) in enumerate(prompts)
    ]
    return pl.DataFrame(rows, schema=CALIBRATION, orient="row")


@pytest.fixture(scope="session")
def answer_tables() -> st.SearchStrategy[pl.DataFrame]:
    """Pairs with any number of templates, names and missing answers; also no answers at all."""
    prompt = st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 2), st.integers(0, 1))
    return st.dictionaries(prompt, ANSWER, max_size=24).map(answer_table)


@pytest.fixture(scope="session")
def complete_answer_tables() -> st.SearchStrategy[pl.DataFrame]:
    """One pair or more; no answer is missing, and pairs have one name or two."""
    return complete_tables()


@pytest.fixture(scope="session")
def calibration_tables() -> st.SearchStrategy[pl.DataFrame]:
    """One prompt per pair, with many ties; also no prompts at all."""
    percents = st.sampled_from([0, 10, 37, 50, 99, 100])
    prompt = st.tuples(st.integers(0, 1), percents, st.booleans())
    return st.lists(prompt, max_size=25).map(calibration_table)


@pytest.fixture(scope="session")
def no_answers() -> pl.DataFrame:
    return pl.DataFrame(schema=ANSWERS)


@pytest.fixture(scope="session")
def no_calibration() -> pl.DataFrame:
    return pl.DataFrame(schema=CALIBRATION)
