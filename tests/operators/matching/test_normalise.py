"""Normalising texts to lemmas."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc

from factsweep.operators.errors import InputError
from factsweep.operators.matching import normalise
from factsweep.operators.matching.normalise import Normaliser
from factsweep.operators.matching.text_folding import fold
from tests.messages import naming


@pytest.fixture(scope="module")
def normaliser() -> Normaliser:
    return Normaliser()


def test_normalise_capitalised_plural_finds_its_lemma(normaliser: Normaliser) -> None:
    texts = pl.Series(["Countries", "countries", "COUNTRY"])
    assert normaliser.normalise(texts).to_list() == [["country"]] * 3


def test_normalise_punctuation_and_spaces_are_dropped(normaliser: Normaliser) -> None:
    texts = pl.Series(["New  York.\n", ' "Paris", … ', "x\x1fy"])
    assert normaliser.normalise(texts).to_list() == [["new", "york"], ["paris"], ["x", "y"]]


def test_normalise_empty_and_null_stay_apart(normaliser: Normaliser) -> None:
    texts = pl.Series("answer", ["", " .\n", None])
    lemmas = normaliser.normalise(texts)
    assert lemmas.to_list() == [[], [], None]
    assert (lemmas.name, lemmas.dtype) == ("answer", pl.List(pl.String))


@pytest.mark.parametrize("texts", [pl.Series([], dtype=pl.String), pl.Series([None, None])])
def test_normalise_nothing_to_read_keeps_length(normaliser: Normaliser, texts: pl.Series) -> None:
    assert normaliser.normalise(texts).to_list() == texts.to_list()


def test_normalise_repeated_texts_keep_their_places(normaliser: Normaliser) -> None:
    texts = pl.Series(["b", "a", "b", None, "a"])
    assert normaliser.normalise(texts).to_list() == [["b"], ["a"], ["b"], None, ["a"]]


def test_normalise_word_is_read_once_per_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    normalise._lemma_cache.cache_clear()
    read: list[str] = []
    joined = Normaliser._joined_lemmas

    def noted(self: Normaliser, tokens: Doc) -> str | None:
        read.append(tokens.text)
        return joined(self, tokens)

    monkeypatch.setattr(Normaliser, "_joined_lemmas", noted)
    for pipeline in ("blank", "blank", "blank-de"):  # whose lemmas are others
        texts = pl.Series(["Zwei Gitarren, once", "Once zwei"])
        assert [lemmas[-1] for lemmas in Normaliser(pipeline).normalise(texts)] == ["once", "zwei"]
    assert sorted(read) == ["gitarren, once", "once", "once zwei", "zwei", "zwei gitarren, once"]


_MARKED = ("can't", "a.m.", "10km", "n't", "'s-bahn", "'d-day", "'", ":)", "x.", "(", "…", "\ue000")
_BLANKS = (" ", "  ", "\t", "\n", "\u00a0", "\u2009", "\x1f")


@given(st.lists(st.sampled_from((*_MARKED, *_BLANKS)) | st.text(max_size=4)).map("".join))
@example("called 'overlord' 'd-day'")  # spaCy's rule of "'d" matches across the blank, too
@example('options: x."y" a b c')
def test_normalise_words_are_those_that_spacy_finds_in_the_whole_text(
    normaliser: Normaliser, text: str
) -> None:
    texts = pl.Series([text])
    doc = normaliser._nlp(*fold(texts))
    (lemmas,) = normaliser.normalise(texts)
    assert lemmas.to_list() == [normaliser._lemma(t) for t in doc if not (t.is_punct or t.is_space)]


def test_no_rule_of_spacy_matches_across_a_blank_between_letters(normaliser: Normaliser) -> None:
    full = normaliser._nlp.tokenizer
    searches = ("prefix_search", "suffix_search", "infix_finditer", "token_match", "url_match")
    bare = Tokenizer(full.vocab, rules={}, **{name: getattr(full, name) for name in searches})
    for rule in full.rules:
        assert " " not in rule.strip()
        for left, right in pairwise(token.text for token in bare(rule)):
            assert not (left[-1].isalnum() and right[0].isalnum()), rule


def test_normaliser_versions_name_what_decides_the_lemmas(normaliser: Normaliser) -> None:
    assert normaliser.versions.keys() == {"spacy", "spacy-lookups-data", "tables"}


def test_normaliser_missing_pipeline_names_the_fix() -> None:
    with pytest.raises(InputError, match=naming("xx_no_such_pipeline")):
        Normaliser("xx_no_such_pipeline").normalise(pl.Series(["a"]))
