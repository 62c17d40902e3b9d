"""Texts among the overrides are taken as they are written, by the types of their fields."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands import api
from factsweep.pipeline.config.compose import composed, expanded
from factsweep.pipeline.config.literal import literal, quoted, unquoted
from factsweep.pipeline.config.settings import load

SIGNS = st.text("\"'\\$`{}[]()*?!#%=,:;|&<>~@ \t\n\rnaü東0", max_size=20)
TEXTS = SIGNS | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def is_for_hydra(text: str) -> bool:
    """Whether a text has a meaning of its own: it is null, quoted as a whole, or in a home."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return is_quoted or text.strip().lower() == "null" or text.startswith("~/")


@given(text=TEXTS.filter(lambda text: not is_for_hydra(text)))
def test_composed_any_text_is_the_value_of_a_key_of_texts(text: str) -> None:
    config = composed([f"answers={text}", f"prompt.system={text}"])
    assert (config["answers"], config["prompt"]["system"]) == (text, text)


@given(text=TEXTS)
def test_written_any_text_by_keyword_is_that_text(text: str) -> None:
    fields = {"run_name": text, "decoding.stop": [text], "model.engine": {"x": text}}
    config = composed(api.written(**fields))
    assert config["run_name"] == config["decoding"]["stop"][0] == config["model"]["engine"]["x"]
    assert config["run_name"] == text


@given(texts=st.lists(TEXTS, min_size=2, max_size=3))
def test_expanded_quoted_texts_are_split_between_them(texts: list[str]) -> None:
    runs = expanded([f"run_name={','.join(map(quoted, texts))}"])
    assert [composed(run.overrides)["run_name"] for run in runs] == texts


def test_composed_values_with_a_grammar_keep_it(subtests: pytest.Subtests) -> None:
    for override, value in (
        ("answers='answers (1).jsonl'", "answers (1).jsonl"),
        ('answers="it\'s, \\"so\\""', 'it\'s, "so"'),
        ("answers=null", None),
        ("run_name=2024", "2024"),
        ("run_name=true", "true"),
        ("results=1e10", "1e10"),
        ("results=~/x", str(Path.home() / "x")),
        ("budget=500", 500),
        ("budget=1%", "1%"),
        ("target=acc_at_1±0.003", "acc_at_1±0.003"),
        ("seed=3", 3),
        ("++control=a=b", "a=b"),
    ):
        with subtests.test(override=override):
            assert composed([override])[override.lstrip("+").partition("=")[0]] == value
            assert literal(literal(override)) == literal(override)


def test_composed_numbers_in_a_list_are_refused_with_both_ways_out() -> None:
    with pytest.raises(InputError, match=r"seed=0,1 gives several values.*study.*quotes"):
        composed(["seed=0,1"])
    with pytest.raises(InputError, match=r"seed='a\(b'; it must be a valid integer"):
        load(["seed=a(b"])


def test_expanded_texts_in_a_list_keep_their_digits() -> None:
    runs = expanded(["model.revision=1.10,1e5,'a, b', main"])
    assert [run.varied["model.revision"] for run in runs] == ["1.10", "1e5", "a, b", "main"]
    revisions = [composed(run.overrides)["model"]["revision"] for run in runs]
    assert revisions == ["1.10", "1e5", "a, b", "main"]
    (whole,) = expanded(["answers=answers (1), b.jsonl"])  # no list that Hydra reads
    assert composed(whole.overrides)["answers"] == "answers (1), b.jsonl"


@pytest.mark.parametrize("name", ["own (2), x=[1].csv", "it's {a} 100% #1.csv", "größe 東?*.csv"])
def test_composed_a_table_of_any_name_is_a_benchmark(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("relation,template,subject,object\n")
    for override in (f"benchmark={name}", f"benchmark.path={name}", f"benchmark={quoted(name)}"):
        assert composed([override])["benchmark"]["path"] == name
    (tmp_path / "a, (b)").mkdir()
    assert composed(["model=a, (b)"])["model"]["id"] == str(tmp_path / "a, (b)")
    assert composed(["model=./my.jinja", f"model.chat_template={name}.jinja"])


def test_unquoted_text_without_quotes_stays() -> None:
    for value in ("a", "'a' and 'b'", "'", "a'b'"):
        assert unquoted(value) == value
