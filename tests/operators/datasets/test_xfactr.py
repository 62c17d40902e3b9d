"""Reading X-FACTR's files."""

import json
from pathlib import Path

import pytest

from factsweep.operators.datasets.facts import Slice, counts, sliced
from factsweep.operators.datasets.triples import plain
from factsweep.operators.datasets.triples import xfactr as facts_from_files
from factsweep.operators.errors import InputError
from factsweep.operators.prompts import masked
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.masked import Masked
from factsweep.operators.prompts.setting import Setting
from factsweep.pipeline.inputs import catalog
from tests.messages import naming

FACTS = [("Q1", "Eve", "Q3", "Rome"), ("Q2", "Bob", "Q4", "Oslo"), ("Q1", "Eve", "Q4", "Oslo")]
KEYS = ("sub_uri", "sub_label", "obj_uri", "obj_label")
FILES = {
    "facts/P19.jsonl": "".join(f"{json.dumps(dict(zip(KEYS, f, strict=True)))}\n" for f in FACTS),
    "languages/templates.csv": "pid,relation,en,fr\n"
    "P19,place,[X] was born in [Y] .,"
    "[X] est [né;X-Gender=MASC|née;X-Gender=FEM] [ARTIND;Y] [PREPLOC;Y] [Y] .\n",
    "languages/gender.tsv": "Q1\tfemale\nQ2\tmale\nQ4\tfemale\n",
    "languages/labels.fr.tsv": "Q1\tÈve\nQ2\tBob\nQ4\tOslo\n",
    "languages/aliases.fr.tsv": "Q1\tEva\tÈve\nQ3\tRome\nQ4\tOslo\tChristiania\n",
}


def test_templates_marks_of_grammar_become_words_or_forms(subtests: pytest.Subtests) -> None:
    for language, given, expected in (
        ("fr", "[ARTDEF;X] [X] a [PREPDEF-à;Y] [Y] .", "[X] a à [Y] ."),
        (
            "fr",
            "Le siège [PREPDEF;X] [X] est en [PREPLOC;Y] [Y] .",
            "Le siège de [X] est en en [Y] .",
        ),
        ("es", "[X] es [ART;X-Gender] [Y]", "[X] es [X:un|una] [Y]"),
        ("es", "[a;X-Gender=MASC|b;X-Gender=FEM|c;X-Number=PL] [X] [Y]", "[X:a|b] [X] [Y]"),
        ("el", "[DEF.Gen;X] [X.Gen] είναι [Y.Acc]", "[X] είναι [Y]"),
        ("ru", "[X] [родиться.Pst;X-Gender] в [Y.Ess]", "[X] родиться в [Y]"),
    ):
        with subtests.test(given):
            assert plain(given, language) == expected


def test_facts_without_a_label_are_left_out_and_words_agree_with_their_entities() -> None:
    facts = facts_from_files(FILES)
    assert facts.pairs.select("pair_id", "subjects", "objects").rows() == [
        ("P19.Q2", ["Bob"], [{"object_id": "Q4", "labels": ["Oslo", "Christiania"]}]),
        ("P19.Q1", ["Ève", "Eva"], [{"object_id": "Q4", "labels": ["Oslo", "Christiania"]}]),
    ]
    assert facts.templates["text"].to_list() == ["[X] est [X:né|née] [Y:un|une] en [Y] ."]
    facts = sliced(facts, Slice(names_per_subject=1))
    (zero,) = expand(facts, Setting("zero-shot", 0), seed=0)
    asked = {"P19.Q1": "Ève est née une en [MASK] .", "P19.Q2": "Bob est né une en [MASK] ."}
    for pair, query in zero.prompts.select("pair_id", "query").iter_rows():
        assert asked[pair] in query
    (shown,) = expand(facts, Setting("relation", 1), seed=0)
    other = {"P19.Q1": asked["P19.Q2"], "P19.Q2": asked["P19.Q1"]}
    for pair, text in shown.of("prompts").select("pair_id", "text").iter_rows():
        assert asked[pair] in text
        assert other[pair] in text
    (mask,) = masked.expand(facts, Masked(), seed=0)
    assert dict(mask.prompts.select("pair_id", "query").iter_rows()) == asked
    assert mask.content_free is not None
    assert "N/A est né un en [MASK] ." in mask.content_free["query"].to_list()


def test_facts_of_no_or_several_languages_are_refused(subtests: pytest.Subtests) -> None:
    none = {name: text for name, text in FILES.items() if ".fr." not in name}
    for files, named in (
        (none, ["no language", "aliases.<language>.tsv"]),
        (FILES | {"languages/aliases.ko.tsv": ""}, ["fr, ko"]),
        (none | {"languages/aliases.ko.tsv": "Q1\ta\nQ4\tb\n"}, ["templates.csv", "ko", "fr"]),
    ):
        with subtests.test(str(named)), pytest.raises(InputError, match=naming(*named)):
            facts_from_files(files)


def _lines(path: Path) -> dict[str, list[str]]:
    rows = [line.split("\t") for line in path.read_text().split("\n") if line]
    return {row[0]: [each for each in row[1:] if each] for row in rows}


@pytest.mark.slow
def test_the_authors_files_of_every_language_agree_with_a_plain_count(
    shared_data: Path, subtests: pytest.Subtests
) -> None:
    folder = shared_data / "xfactr"
    triples = [
        (path.stem, *(json.loads(line)[key] for key in ("sub_uri", "obj_uri")))
        for path in sorted(folder.glob("facts/*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    relations = {}
    for language in ("en", "fr", "es", "ko", "zh"):
        with subtests.test(language):
            entry = catalog.entry("xfactr", language)
            facts = catalog.read(entry, str(folder))
            named = (
                folder / f"languages/{'aliases' if language == 'zh' else 'labels'}.{language}.tsv"
            )
            known = _lines(named) if language != "en" else None
            kept = [t for t in triples if known is None or (known.get(t[1]) and known.get(t[2]))]
            found = counts(facts)
            assert found["unique_triples"] == len(set(kept))
            assert found["pairs"] == len({each[:2] for each in kept})
            assert found["relations"] == len({each[0] for each in kept})
            relations[language] = found["relations"]
            assert not facts.templates["text"].str.contains(r";|\[[^XY]|  ").any()
    assert relations["en"] == 46  # the paper, section 3.1
