"""Facts in another language: asked in its words, matched by its rules, and English as it was."""

from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.matching.lemmas import key, mark_correct
from factsweep.operators.matching.normalise import Normaliser
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.folders import files
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import build_plan, warnings
from tests.messages import naming

CSV = """relation,template,subject,object
Hauptstadt,Die Hauptstadt von [X] ist [Y].,Österreich,Wien
Hauptstadt,Die Hauptstadt von [X] ist [Y].,Frankreich,Paris
Hauptstadt,Die Hauptstadt von [X] ist [Y].,Italien,Rom
"""


@pytest.fixture
def facts(tmp_path: Path) -> str:
    path = tmp_path / "facts.csv"
    path.write_text(CSV, encoding="utf-8")
    return f"benchmark={path}"


def test_facts_are_asked_in_the_words_of_their_language(facts: str, tmp_path: Path) -> None:
    shots = ["prompt.context=relation", "prompt.shots=1", f"artifacts={tmp_path}/a"]
    run = load([facts, "benchmark.language=de", *shots])
    branch = build_plan(run).branches[0]
    assert branch.title == "1-relation language=de"
    for step in branch.steps[:2]:
        step.run()
    prompt = branch.prompts.read_all("prompts").sort("prompt_id").row(0, named=True)
    context = branch.prompts.read_all("contexts").filter(context_id=prompt["context_id"])
    assert prompt["query"] == "F: Die Hauptstadt von Frankreich ist [MASK].\nA:"
    first, question, answer, _ = context["text"].unique().item().split("\n")
    assert first == "Sage das [MASK] in jedem Satz mit einem Wort voraus."
    assert question.startswith("F: Die Hauptstadt von ")
    assert answer in {"A: Wien.", "A: Rom."}
    assert run.matching.pipeline == "blank-de"
    english = build_plan(load([facts, *shots])).branches[0]
    assert english.facts.folder == branch.facts.folder
    assert english.prompts.folder != branch.prompts.folder


def test_every_language_has_its_words() -> None:
    facts = ["benchmark=facts", "benchmark.path=x.csv"]
    for language in files("language"):
        run = load([*facts, f"benchmark.language={language}"])
        (setting,) = run.settings
        words = setting.words  # type: ignore[attr-defined]
        assert "[MASK]" in words.mask
        assert words.language == language
        assert all((words.question, words.asks, words.answers, words.ends))
        assert run.matching.pipeline == f"blank-{language}"


def test_what_no_language_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = ["benchmark=facts", "benchmark.path=x.csv"]
    with pytest.raises(InputError, match=naming("benchmark.language=eo", "conf/language/")):
        load([*facts, "benchmark.language=eo"])
    with pytest.raises(InputError, match=naming("kamel-mini", "English")):
        load(["benchmark=kamel-mini", "+benchmark.language=de"])
    folder = tmp_path / folders.OWN / "language"
    folder.mkdir(parents=True)
    (folder / "eo.yaml").write_text("mask: '[MASK]?'\nquestion: Kio?\nasks: 'D: '\nanswers: 'R:'\n")
    monkeypatch.chdir(tmp_path)
    assert load([*facts, "benchmark.language=eo"]).matching.pipeline == "blank-eo"
    (folder / "eo.yaml").write_text("mask: '[MASK]?'\n")
    with pytest.raises(InputError, match=naming("eo.yaml")):
        load([*facts, "benchmark.language=eo"])


def test_language_without_lemmas_is_said(facts: str, tmp_path: Path) -> None:
    for language, is_warned in {"de": False, "ar": True, "ja": True}.items():
        plan = build_plan(
            load([facts, f"benchmark.language={language}", f"artifacts={tmp_path}/a"])
        )
        matching_warnings = [warning for warning in warnings(plan) if "no lemmas" in warning]
        assert bool(matching_warnings) == is_warned, language


def test_columns_of_other_names_are_said(facts: str, tmp_path: Path) -> None:
    for heads, n_warnings in {
        "relation,template,subject,object": 0,
        "rel,template,Head,tail": 1,
    }.items():
        file = tmp_path / "facts.csv"
        file.write_text(f"{heads}\ncapital,[Y] of [X],Peru,Lima\n")
        plan = build_plan(load([facts, f"artifacts={tmp_path}/a"]))
        matching_warnings = [warning for warning in warnings(plan) if "Head as subject" in warning]
        assert len(matching_warnings) == n_warnings, heads


FORMS = [
    # language, label, answer, right
    ("de", "Haus", "Häuser.", True),
    ("de", "haus", "HÄUSER", True),
    ("de", "Stadt", "Staat", False),
    ("de", "Köln", "Ko\u0308ln", True),  # the dots as a character of their own
    ("ja", "東京", "東京です。", True),
    ("ja", "東京", "京都です。", False),
    ("zh", "北京", "北京市。", True),
    ("ko", "서울", "서울.", True),
    ("zh", "2008", "２００８年", True),  # digits of full width
]
LARGE = [  # their tables take seconds to load
    ("fr", "Allemagne", "l'Allemagne.", True),
    ("fr", "Côte", "Co\u0302te", True),
    ("ru", "город", "Города.", True),
    ("es", "ciudad", "las ciudades", True),
    ("ar", "الرياض", "الرياض؟", True),
]


@pytest.mark.parametrize("cases", [FORMS, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_answers_are_right_in_the_forms_that_a_language_knows(
    cases: list[tuple[str, str, str, bool]],
) -> None:
    wrong = []
    for language, label, answer, right in cases:
        normaliser = Normaliser(f"blank-{language}")
        keys = [
            pl.DataFrame(
                {"pair_id": ["p"], "lemmas": normaliser.normalise(pl.Series([text]))}
            ).select("pair_id", key=key(pl.col("lemmas")))
            for text in (answer, label)
        ]
        if mark_correct(*keys)["correct"].item() != right:
            wrong.append((language, label, answer))
    assert wrong == []
