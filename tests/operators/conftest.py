"""Small facts and answers: written out, and at random."""

from collections.abc import Callable, Mapping
from itertools import product

import polars as pl
import pytest
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from tests.builders import Relation, facts

QUESTIONS = ["Where is [X]? [Y].", "What has [X]? [Y]"]
STATEMENTS = ["[X] lies in [Y].", "[Y] has [X].", "[Y], [X] and [X] again: [Y]."]
# The same names in many pairs, so that texts repeat; some look like slots or back-references.
NAMES = ["A", "B", "Éire", "$1 Ke$ha", "[Y]"]


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
        "text": pl.String,
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
        (f"P{r}", f"P{r}.Q{p}", f"P{r}.{t}", s, key, len(lemmas), correct, " ".join(lemmas))
        for (r, p, t, s), (key, correct) in prompts.items()
        for lemmas in [(key or "").split("\x1f")[1:-1]]
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
