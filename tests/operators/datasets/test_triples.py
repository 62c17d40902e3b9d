"""Triples of mLAMA's, ParaRel's and X-FACTR's files."""

import json
from pathlib import Path

import pytest

from factsweep.operators.datasets.facts import Slice, counts, slice_facts
from factsweep.operators.datasets.triples import mlama, pararel, plain_template, xfactr
from factsweep.operators.errors import InputError
from factsweep.operators.metrics import data_set
from factsweep.operators.prompts import masked
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.masked import MaskedSetting
from factsweep.operators.prompts.setting import Setting
from factsweep.pipeline.inputs import catalog
from tests.messages import naming

TEMPLATES = {"de": "[X] wurde in [Y] geboren.", "fr": "[X] est né à [Y]."}
FACT = {"sub_label": "Ann", "obj_label": "Rom"}
LABELS = {"de": ("Köln", "Rom"), "fr": ("Cologne", "Rome")}


def lines(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two languages in mLAMA's layout."""
    for language, template in TEMPLATES.items():
        language_folder = tmp_path / "mlama1.1" / language
        language_folder.mkdir(parents=True)
        (language_folder / "templates.jsonl").write_text(
            lines({"relation": "P19", "template": template}, {"relation": "P1", "template": "[X]"})
        )
        rows = [
            {"lineid": n, "sub_uri": "Q1", "sub_label": "Ann", "obj_uri": q, "obj_label": label}
            for n, (q, label) in enumerate(zip(("Q365", "Q220"), LABELS[language], strict=True))
        ]
        (language_folder / "P19.jsonl").write_text(lines(*rows, rows[0]))
    return tmp_path


def test_a_language_is_picked_and_its_triples_of_one_subject_are_a_pair(folder: Path) -> None:
    for language, (first, second) in LABELS.items():
        facts = catalog.read_facts(catalog.entry("mlama", language), str(folder))
        assert facts.templates["text"].to_list() == [TEMPLATES[language]]
        assert facts.pairs.select("pair_id", "subjects", "objects").rows() == [
            (
                "P19.Q1",
                ["Ann"],
                [
                    {"object_id": "Q365", "labels": [first]},
                    {"object_id": "Q220", "labels": [second]},
                ],
            )
        ]


def test_a_language_that_is_not_there_is_refused_and_never_another(folder: Path) -> None:
    with pytest.raises(InputError, match=naming("mlama has no files", str(folder))):
        catalog.read_facts(catalog.entry("mlama", "ko"), str(folder))


def test_unfit_lines_are_named(subtests: pytest.Subtests) -> None:
    fact = triples(("Ann", "Rome"))
    for read, files, words in (
        (mlama, {"de/P1.jsonl": "{"}, ["de/P1.jsonl, line 1", "no JSON"]),
        (mlama, {"de/P1.jsonl": '{"sub_label": "a"}'}, ["de/P1.jsonl, line 1", "obj_label"]),
        (mlama, {"de/templates.jsonl": '{"relation": "P1"}'}, ["templates.jsonl, line 1"]),
        (mlama, {"de/P1.jsonl": "", "fr/P1.jsonl": ""}, ["de, fr", "benchmark.language"]),
        (mlama, {"de/P1.jsonl": lines(FACT)}, ["no template", "templates.jsonl"]),
        (mlama, {"de/P1.jsonl": lines(FACT | {"sub_uri": ["Q1"]})}, ["line 1", "sub_uri"]),
        *(
            (pararel, {"patterns/P1.jsonl": patterns("[X] [Y]") + line}, ["line 2", problem])
            for line, problem in (
                ("{", "no JSON"),
                ("[1]", "pattern must be a text; correct or drop the line"),
                ('{"pattern": " "}', "pattern must be a text"),
                ('{"pattern": 1}', "pattern must be a text"),
            )
        ),
        (
            pararel,
            {"patterns/P1.jsonl": patterns("[X] is"), "facts/P1.jsonl": fact},
            ["P1.000", "[Y]"],
        ),
    ):
        with subtests.test(str(words)), pytest.raises(InputError, match=naming(*words)):
            read(files)


def test_rows_without_ids_are_known_by_their_labels() -> None:
    files = {
        "de/templates.jsonl": lines({"relation": "born", "template": "[X] [Y]"}),
        # What Unicode calls a line end is part of a label.
        "de/born.jsonl": '{"sub_label": "A\u2028nn", "obj_label": "Rom"}\r\n\n',
    }
    assert mlama(files).pairs["pair_id"].to_list() == ["born.A\u2028nn"]


def patterns(*texts: str) -> str:
    return lines(*({"pattern": text, "tense": "past"} for text in texts))


def triples(*pairs: tuple[str, str]) -> str:
    return lines(*({"sub_label": s, "obj_label": o, "uuid": "1"} for s, o in pairs))


def test_templates_are_numbered_in_their_relation_and_keep_their_text() -> None:
    files = {
        "set/patterns/P20.jsonl": patterns("[X] died in [Y] .", "Where died [X]? [Y]."),
        "set/patterns/P19.jsonl": patterns("[X] is from [Y]", "[X] is from [Y]"),
        "set/patterns/README.md": "text",
        **{f"set/facts/{relation}.jsonl": triples(("Ann", "Rome")) for relation in ("P19", "P20")},
    }
    columns = ["template_id", "text", "origin", "group", "style"]
    assert pararel(files).templates.select(columns).rows() == [
        ("P19.000", "[X] is from [Y]", "manual", 0, "statement"),
        ("P20.000", "[X] died in [Y] .", "manual", 0, "statement"),
        ("P20.001", "Where died [X]? [Y].", "manual", 1, "question"),
    ]


def test_facts_rows_of_one_subject_are_its_objects() -> None:
    files = {
        "patterns/P19.jsonl": patterns("[X] is from [Y]"),
        "facts/P19.jsonl": triples(
            ("Ann", "Rome"), ("Bob", "Bonn"), ("Ann", "Oslo"), ("Ann", "Rome")
        ),
    }
    facts = pararel(files, {"P19": "place of birth"})
    assert facts.relations.rows() == [("P19", "place of birth")]
    assert facts.pairs.select("pair_id", "subjects", "objects").rows() == [
        (
            "P19.Ann",
            ["Ann"],
            [{"object_id": "Rome", "labels": ["Rome"]}, {"object_id": "Oslo", "labels": ["Oslo"]}],
        ),
        ("P19.Bob", ["Bob"], [{"object_id": "Bonn", "labels": ["Bonn"]}]),
    ]


def test_facts_relations_without_patterns_or_facts_are_left_out() -> None:
    files = {
        "patterns/P1.jsonl": patterns("[X] [Y]"),
        "patterns/P2.jsonl": patterns("[X] [Y]"),
        "facts/P2.jsonl": triples(("Ann", "Rome")),
        "facts/P3.jsonl": triples(("Ann", "Rome")),
    }
    facts = pararel(files)
    for table in (facts.relations, facts.templates, facts.pairs):
        assert table["relation_id"].to_list() == ["P2"]


def test_facts_of_the_authors_files_are_all_there(shared_data: Path) -> None:
    folder = shared_data / "trex"
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.glob("*/*.jsonl")}
    facts = pararel(files)
    figures = counts(facts)
    assert (figures["relations"], figures["templates"]) == (39, 329)
    # BELIEF, Table 8, has .4860; it does not say what a word is.
    assert data_set.diversity(facts)["lexicon"][-1] == pytest.approx(0.4860, abs=0.001)


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
    for language, template, expected in (
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
        with subtests.test(template):
            assert plain_template(template, language) == expected


def test_facts_without_a_label_are_left_out_and_words_agree_with_their_entities() -> None:
    facts = xfactr(FILES)
    assert facts.pairs.select("pair_id", "subjects", "objects").rows() == [
        ("P19.Q2", ["Bob"], [{"object_id": "Q4", "labels": ["Oslo", "Christiania"]}]),
        ("P19.Q1", ["Ève", "Eva"], [{"object_id": "Q4", "labels": ["Oslo", "Christiania"]}]),
    ]
    assert facts.templates["text"].to_list() == ["[X] est [X:né|née] [Y:un|une] en [Y] ."]
    facts = slice_facts(facts, Slice(names_per_subject=1))
    (zero,) = expand(facts, Setting("zero-shot", 0), seed=0)
    query_by_pair = {
        "P19.Q1": "Ève est née une en [MASK] .",
        "P19.Q2": "Bob est né une en [MASK] .",
    }
    for pair, query in zero.prompts.select("pair_id", "query").iter_rows():
        assert query_by_pair[pair] in query
    (one_shot,) = expand(facts, Setting("relation", 1), seed=0)
    other = {"P19.Q1": query_by_pair["P19.Q2"], "P19.Q2": query_by_pair["P19.Q1"]}
    for pair, text in one_shot.of("prompts").select("pair_id", "text").iter_rows():
        assert query_by_pair[pair] in text
        assert other[pair] in text
    (mask,) = masked.expand(facts, MaskedSetting(), seed=0)
    assert dict(mask.prompts.select("pair_id", "query").iter_rows()) == query_by_pair
    assert mask.content_free is not None
    assert "N/A est né un en [MASK] ." in mask.content_free["query"].to_list()


def test_facts_of_no_or_several_languages_are_refused(subtests: pytest.Subtests) -> None:
    none = {name: text for name, text in FILES.items() if ".fr." not in name}
    for files, words in (
        (none, ["no language", "aliases.<language>.tsv"]),
        (FILES | {"languages/aliases.ko.tsv": ""}, ["fr, ko"]),
        (none | {"languages/aliases.ko.tsv": "Q1\ta\nQ4\tb\n"}, ["templates.csv", "ko", "fr"]),
    ):
        with subtests.test(str(words)), pytest.raises(InputError, match=naming(*words)):
            xfactr(files)


def _lines(path: Path) -> dict[str, list[str]]:
    rows = [line.split("\t") for line in path.read_text().split("\n") if line]
    return {row[0]: [name for name in row[1:] if name] for row in rows}


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
            facts = catalog.read_facts(entry, str(folder))
            names_path = (
                folder / f"languages/{'aliases' if language == 'zh' else 'labels'}.{language}.tsv"
            )
            names = _lines(names_path) if language != "en" else None
            triples_named = [
                t for t in triples if names is None or (names.get(t[1]) and names.get(t[2]))
            ]
            sizes = counts(facts)
            assert sizes["unique_triples"] == len(set(triples_named))
            assert sizes["pairs"] == len({triple[:2] for triple in triples_named})
            assert sizes["relations"] == len({triple[0] for triple in triples_named})
            relations[language] = sizes["relations"]
            assert not facts.templates["text"].str.contains(r";|\[[^XY]|  ").any()
    assert relations["en"] == 46  # the paper, section 3.1
