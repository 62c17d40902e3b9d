"""The text of a prompt, letter by letter, against the examples of the paper (appendix E)."""

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.prompts import setting as settings
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.setting import Draw, Setting, query
from tests.builders import facts as make_facts

ZERO_SHOT = """\
Predict the [MASK] in each sentence in one word.
Q: [MASK] consists of LAUPT.
A:"""
RANDOM = """\
Predict the [MASK] in each sentence in one word.
Q: [MASK] is the administrative center of Jiangsu.
A: Nanjing.
Q: Mar del Plata and [MASK] are sister cities that have been developing together.
A: Havana.
Q: Malawi has established diplomatic ties with [MASK].
A: Australia.
Q: Which country is House of Representatives located? [MASK].
A: Libya.
Q: [MASK] consists of LAUPT.
A:"""
RELATION = """\
Predict the [MASK] in each sentence in one word.
Q: What is the overarching group for Panzer Division Kempf? [MASK].
A: Wehrmacht.
Q: To whom does Mount Bulusan relate? [MASK].
A: Luzon.
Q: Who is responsible for Army National Guard? [MASK].
A: National Guard.
Q: What group is pharmacy a part of? [MASK].
A: biology.
Q: [MASK] consists of environmental factors.
A:"""
TEMPLATE = """\
Predict the [MASK] in each sentence in one word.
Q: [MASK] consists of Panzer Division Kempf.
A: Wehrmacht.
Q: [MASK] consists of Mount Bulusan.
A: Luzon.
Q: [MASK] consists of Army National Guard.
A: National Guard.
Q: [MASK] consists of pharmacy.
A: biology.
Q: [MASK] consists of environmental factors.
A:"""
QUESTION = """\
Answer each question in one word.
Q: What group is pharmacy a part of?
A: biology.
Q: Who is responsible for Mount Bulusan?
A: Luzon.
Q: To whom does Panzer Division Kempf relate?
A:"""

# relation: its templates, and its subjects with their object
Source = dict[str, tuple[list[str], dict[str, str]]]
PART_OF: Source = {
    "P361": (
        [
            "[Y] consists of [X].",
            "What is the overarching group for [X]? [Y].",
            "To whom does [X] relate? [Y].",
            "Who is responsible for [X]? [Y].",
            "What group is [X] a part of? [Y].",
        ],
        {
            "environmental factors": "ecology",
            "Panzer Division Kempf": "Wehrmacht",
            "Mount Bulusan": "Luzon",
            "Army National Guard": "National Guard",
            "pharmacy": "biology",
        },
    )
}
OTHERS: Source = {
    "P17": (["Which country is [X] located? [Y]."], {"House of Representatives": "Libya"}),
    "P190": (
        ["[X] and [Y] are sister cities that have been developing together."],
        {"Mar del Plata": "Havana"},
    ),
    "P36": (["[Y] is the administrative center of [X]."], {"Jiangsu": "Nanjing"}),
    "P361": (["[Y] consists of [X]."], {"LAUPT": "Los Angeles"}),
    "P530": (["[X] has established diplomatic ties with [Y]."], {"Malawi": "Australia"}),
}

Shots = list[tuple[str, str]]  # pair, template
OF_RANDOM: Shots = [
    ("P36.Jiangsu", "P36.000"),
    ("P190.Mar del Plata", "P190.000"),
    ("P530.Malawi", "P530.000"),
    ("P17.House of Representatives", "P17.000"),
]
PARTS = ["Panzer Division Kempf", "Mount Bulusan", "Army National Guard", "pharmacy"]
OF_RELATION: Shots = [(f"P361.{part}", f"P361.00{i + 1}") for i, part in enumerate(PARTS)]
OF_TEMPLATE: Shots = [(f"P361.{part}", "P361.000") for part in PARTS]
OF_QUESTION: Shots = [("P361.pharmacy", "P361.004"), ("P361.Mount Bulusan", "P361.003")]


@pytest.fixture(scope="module")
def facts_of() -> Callable[[Source], Facts]:
    def facts(source: Source) -> Facts:
        # Further names and objects, which no demonstration shows.
        return make_facts(
            {
                relation: (texts, {s: ([s, "alias"], [[o, "x"], ["y"]]) for s, o in pairs.items()})
                for relation, (texts, pairs) in source.items()
            }
        )

    return facts


def rows_of(column: pl.Series, ids: list[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([[column.to_list().index(name) for name in ids]], dtype=np.int64)


@pytest.mark.parametrize(
    ("setting", "source", "shots", "beginning", "subject", "expected"),
    [
        (Setting("zero-shot", 0), OTHERS, [], "[MASK] consists of", "LAUPT.", ZERO_SHOT),
        (Setting("random", 4), OTHERS, OF_RANDOM, "[MASK] consists of", "LAUPT.", RANDOM),
        (
            Setting("relation", 4),
            PART_OF,
            OF_RELATION,
            "[MASK] consists of",
            "environmental factors.",
            RELATION,
        ),
        (
            Setting("template", 4),
            PART_OF,
            OF_TEMPLATE,
            "[MASK] consists of",
            "environmental factors.",
            TEMPLATE,
        ),
        (
            Setting("relation", 2, "question"),
            PART_OF,
            OF_QUESTION,
            "To whom does",
            "Panzer Division Kempf relate?",
            QUESTION,
        ),
    ],
)
def test_prompt_of_the_papers_draw_is_the_papers_text(
    facts_of: Callable[[Source], Facts],
    setting: Setting,
    source: Source,
    shots: Shots,
    beginning: str,
    subject: str,
    expected: str,
) -> None:
    pool = settings.pool(facts_of(source), setting)
    pairs = rows_of(pool.pairs["pair_id"], [pair for pair, _ in shots])
    templates = rows_of(pool.templates["template_id"], [template for _, template in shots])
    context = settings.contexts(pool, setting, ["c"], Draw(pairs, templates))
    question = pl.select(
        query(Setting("zero-shot", 0), pl.lit(f"{beginning} {subject}"), is_first=True)
    ).item()
    assert context["text"].item() + question == expected


def prompt(facts: Facts, setting: Setting, seed: int, prompt_id: str) -> str:
    relation = prompt_id.partition(".")[0]
    expansion = next(e for e in expand(facts, setting, seed=seed) if e.relation_id == relation)
    row = expansion.prompts.filter(prompt_id=prompt_id).row(0, named=True)
    context: str = expansion.contexts.filter(context_id=row["context_id"])["text"].item()
    return context + str(row["query"])


def test_expand_zero_shot_and_4_random_are_the_papers_prompts(
    facts_of: Callable[[Source], Facts],
) -> None:
    facts, name = facts_of(OTHERS), "P361.LAUPT.000.0"
    assert prompt(facts, Setting("zero-shot", 0), 0, name) == ZERO_SHOT
    text = prompt(facts, Setting("random", 4), 3, name)
    assert sorted(text.split("Q: ")) == sorted(RANDOM.split("Q: "))
    assert text.endswith("Q: [MASK] consists of LAUPT.\nA:")


def test_expand_question_style_asks_questions_alone_and_of_the_same_facts(
    facts_of: Callable[[Source], Facts], mini: Facts
) -> None:
    (expansion,) = expand(facts_of(PART_OF), Setting("template", 1, "question"), seed=0)
    assert set(expansion.prompts["template_id"]) == {f"P361.00{i}" for i in range(1, 5)}
    texts = pl.concat([expansion.prompts["query"], expansion.contexts["text"]])
    assert not texts.str.contains(r"\[|consists of").any()
    masked, questions = (
        pl.concat(e.prompts for e in expand(mini, Setting("zero-shot", 0, **options), seed=0))
        for options in ({"templates": "question"}, {"style": "question"})
    )
    assert masked["prompt_id"].sort().equals(questions["prompt_id"].sort())
    assert masked["query"].str.contains(r"\? \[MASK\]\.?\nA:$").all()
    assert not questions["query"].str.contains("[MASK]", literal=True).any()


@pytest.mark.parametrize(
    ("setting", "name", "variant"),
    [
        (Setting("zero-shot", 0), "zero-shot", None),
        (Setting("zero-shot", 0, templates="question"), "zero-shot", "templates=question"),
        (Setting("zero-shot", 0, "question", "question"), "zero-shot", "style=question"),
        (Setting("zero-shot", 0, scope="prompt"), "zero-shot", None),
        (Setting("template", 4), "4-template", None),
        (Setting("random", 2, scope="prompt"), "2-random", "scope=prompt"),
        (
            Setting("relation", 1, "question", "manual", "prompt"),
            "1-relation",
            "style=question,templates=manual,scope=prompt",
        ),
        (Setting("template", 4, as_="chat"), "4-template", "as=chat"),
        (
            Setting("template", 4, as_="turns", system="Be brief."),
            "4-template",
            "as=turns,system=213c22ed",
        ),
    ],
)
def test_setting_is_named_as_tables_name_it(
    setting: Setting, name: str, variant: str | None
) -> None:
    assert (setting.name, setting.variant) == (name, variant)
