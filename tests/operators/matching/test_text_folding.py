"""Texts in the form in which they are compared, and the verdicts that follow."""

import unicodedata
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from factsweep.operators.datasets.kamel import find_marked_labels, read_answers
from factsweep.operators.datasets.myriadlama import facts_from_rows
from factsweep.operators.matching.lemmas import contains, key
from factsweep.operators.matching.normalise import BY_CHARACTER, Normaliser
from factsweep.operators.matching.text_folding import fold
from factsweep.operators.schemas import schema
from factsweep.pipeline.config import folders

LANGUAGES = ("en", "ar", "de", "ja", "ko", "tr")
NAMES = (
    "Paris",
    "New York City",
    "O'Brien",
    "São Paulo",
    "1889",
    "3.5",
    "-5",
    "C++",
    "U.S.",
    "東京",
)
MARKUP = (
    *("**{}**", "*{}*", "__{}__", "_{}_", "`{}`", "```\n{}\n```", "~~{}~~", "# {}", "> {}"),
    *("<b>{}</b>", '<span class="x">{}</span>', "{}<br/>", "<answer>{}</answer>", "&quot;{}&quot;"),
    *("{}</s>", "{}<|im_end|>", "{}<|eot_id|>", "{}<end_of_turn>", "<bos>{}<eos>", "{}<|im_en"),
    *("{}<｜end▁of▁sentence｜>", "[INST]{}[/INST]", "{}[SEP]", "{} [UNK]", "▁{}"),
    *("\\boxed{{{}}}", "$\\boxed{{\\text{{{}}}}}$", "${}$", "\\({}\\)", "\\textbf{{{}}}"),
    *("- {}", "* {}", "• {}", "1) {}", "(1) {}", "**1)** {}", "A list:\n• {}"),
    *("[{}]", "({})", "{{{}}}", "[[{}]]", "[{}](http://x.org/a_(b))", "【{}】", "（{}）"),
    *("“{}”", "‘{}’", "«{}»", "„{}“", "「{}」", '"{}"', "'{}'", "''{}''"),
    *("{}.", "{}!", "{}?", "{},", "{}…", "¿{}?", "{}。", "{}.The end", "{}, x", "Answer:{}"),
    *("{}—the city", "{}\n", "{}\\n", "\ufeff{}\u200b", "\u2068{}\u2069", "||{}||", "{}™"),
)


def keys(language: str, texts: Sequence[str]) -> pl.Series:
    pipeline = "blank" if language == "en" else f"blank-{language}"
    lemmas = Normaliser(pipeline).normalise(pl.Series("key", texts)).to_frame()
    return lemmas.select(key(pl.col("key")))["key"]


def verdicts(language: str, label: str, answers: Sequence[str]) -> list[bool]:
    rows = pl.DataFrame({"answer": keys(language, answers)})
    label_key = pl.lit(keys(language, [label])[0])
    return rows.select(contains(pl.col("answer"), label_key)).to_series().to_list()


@pytest.mark.parametrize("language", LANGUAGES)
def test_answer_in_markup_gets_the_verdict_of_the_bare_answer(language: str) -> None:
    for name in NAMES:
        answers = [markup.format(name) for markup in MARKUP]
        expected = keys(language, [name])[0].count("\x1f")
        assert verdicts(language, name, answers) == [True] * len(MARKUP), name
        bare_answers = [
            answers[n] for n, text in enumerate(MARKUP) if not any(map(str.isalnum, text))
        ]
        assert {words.count("\x1f") for words in keys(language, bare_answers)} == {expected}, name


_PIECES = st.sampled_from(
    (*"aA1.-*_`'\"$|<>[](){}~#:/\\&;\n ßİıΣ½²東는بִـ", "**", "1. ", "</s>", "<|")
)


@settings(max_examples=60)
@given(st.lists(_PIECES | st.characters(codec="utf-8"), max_size=9).map("".join))
@example("+**Paris")
@example("i\u0307:a")
@example("J\u030c")
def test_fold_twice_changes_nothing_and_composition_does_not_matter(text: str) -> None:
    folded = fold(pl.Series([text, unicodedata.normalize("NFC", text)]))
    assert fold(folded).to_list() == folded.to_list()
    decomposed = fold(pl.Series([unicodedata.normalize("NFD", text)]))
    assert decomposed[0] == folded[1]


@pytest.mark.parametrize(
    ("language", "label", "right", "wrong"),
    [
        ("en", "São Paulo", ("SA\u0303O PAULO", "Ｓão Paulo", "São\u00a0Paulo."), ("Sao Paulo",)),
        ("en", "Côte d'Ivoire", ("Côte d’Ivoire", "Côte d´Ivoire", "Côte dʼIvoire"), ()),
        ("en", "2010-2015", ("2010–2015", "2010—2015", "2010−2015", "2010‑2015"), ()),
        ("en", "İstanbul", ("Istanbul", "i\u0307stanbul", "ISTANBUL"), ()),
        ("en", "Straße", ("Strasse", "STRASSE", "STRAẞE"), ()),
        ("en", "Σίσυφος", ("ΣΊΣΥΦΟΣ",), ()),
        ("en", "Madrid\u200b", ("Madrid", "Ma\u00addrid", "\ufeffMadrid\ufe0f"), ()),
        ("en", "C++ <3", ("C++ <3",), ("C <3", "C++")),
        ("en", "a < b", ("**a < b**",), ("a b",)),
        ("en", "H2O", ("H₂O", "H<sub>2</sub>O"), ()),
        ("en", "106", (), ("10⁶", "10<sup>6</sup>")),
        ("en", "2. Bundesliga", ("2. Bundesliga.",), ("1. Bundesliga",)),
        ("en", "1", ("1.", "1. ", "1) 1"), ("11", "1.5", "-1")),
        ("en", "1. Division", ("1. Division", "**1. Division**."), ("2. Division", "Division")),
        ("en", "Paris", ("1. Paris", "**1.** Paris", "1) Oslo\n2) Paris"), ()),
        ("en", "Serie A", ("Serie A.", "**Serie A.**", "Serie A. It is", "Serie A;Serie B"), ()),
        ("en", "Booker T.", ("Booker T., a pianist", "*Booker T.*", "Booker T!", "Booker T"), ()),
        ("en", "Ann D. Gordon", ("Ann D Gordon", "Ann D. Gordon."), ("Ann has Gordon",)),
        ("en", "St. Louis", ("St Louis", "St. Louis."), ("Louis",)),
        ("en", "1889", ("~1889", "==1889==", "in=1889", "→1889"), ("11889",)),
        ("en", "Last.fm", ("Last.fm", "Last.FM"), ()),
        ("de", "1. Mai 1886", ("am 1. Mai 1886",), ("14. Mai 1886",)),
        ("de", "Straßen", ("Strasse", "Strassen", "STRASSE"), ()),
        ("de", "-5", ("−5",), ("5",)),
        ("tr", "İstanbul", ("istanbul", "İSTANBUL", "İstanbul'da", "İstanbul’un"), ("Istanbul",)),
        ("tr", "Iğdır", ("IĞDIR", "ığdır"), ("iğdir",)),
        ("tr", "Isparta", ("ısparta", "ISPARTA'da"), ()),
        ("ar", "الرياض", ("الرِّيَاض", "الريـــاض"), ("جدة",)),
        ("ar", "إيران", ("ايران", "إيران."), ()),
        ("ar", "1984", ("١٩٨٤",), ()),
        ("ko", "서울", ("서울입니다", "서울은", "서울에서는", "서울로", "서울이다."), ("서울대",)),
        ("ko", "부산", ("부산이고", "부산이며", "부산인데"), ()),
        ("ko", "대만", ("대만", "대만은", "대만입니다"), ("대",)),
        ("ko", "BTS", ("BTS는",), ()),
        ("ro", "București", ("Bucureşti", "BUCUREŞTI"), ("Bucuresti",)),
        ("ja", "US", ("USです", "答えはUS。"), ("Russia", "BUS")),
        ("zh", "5", ("5年", "第5"), ("15", "1.5", "5,000")),
        ("th", "US", ("ประเทศ US",), ("Russia",)),
        ("ja", "東京", ("東京です", "「東京」"), ("京都",)),
    ],
)  # fmt: skip
def test_answer_is_right_by_the_rules_of_its_language(
    language: str, label: str, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    expected = [True] * len(right) + [False] * len(wrong)
    assert verdicts(language, label, [*right, *wrong]) == expected


def test_fold_of_clean_labels_only_lowers_their_case() -> None:
    path = folders.CATALOG / "mini" / "myriadlama-mini" / "rows.parquet"
    pairs = facts_from_rows(pl.scan_parquet(path)).pairs
    names = pl.col("objects").list.eval(pl.element().struct.field("labels").explode())
    labels = pairs.select(names.explode()).to_series().drop_nulls().unique()
    lemmas = Normaliser().normalise(labels).to_list()
    nlp, lemma = Normaliser()._nlp, Normaliser()._lemma
    docs = map(nlp, labels.str.to_lowercase())
    assert lemmas == [[lemma(t) for t in doc if not (t.is_punct or t.is_space)] for doc in docs]


@given(
    st.text(max_size=4) | st.sampled_from(("!!!", "…", "\u200b", "<p>", "+", "♥", "々", "e\u0301"))
)
def test_text_has_words_exactly_where_it_has_lemmas(text: str) -> None:
    for pipeline in ("blank", f"blank-{BY_CHARACTER[0]}"):
        normaliser, texts = Normaliser(pipeline), pl.Series([text])
        has_lemmas = normaliser.normalise(texts).list.len() > 0
        assert normaliser.has_words(texts).to_list() == has_lemmas.to_list()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        *[
            (markup.format("C#"), "c#")
            for markup in ('"{}"', "({})", "{}!", "{},", "**{}**", "`{}`")
        ],
        *[
            (markup.format("C#"), "c#")
            for markup in ("“{}”.", "[{}]", "<b>{}</b>", "{}</s>", "- {}")
        ],
        ("\u200bC#\ufeff", "c#"),
        ('"C"', "c"),
        ("C+", "c+"),
        ('"!!!"', "!!!"),
        ("\\boxed{C++}", "c++"),
        ("Ｃ＃", "c#"),
    ],
)
def test_kamel_answer_with_marks_around_it_is_the_label(answer: str, expected: str) -> None:
    labels = ("C", "C#", "C++", "!!!")
    objects = [[{"object_id": f"Q{n}", "labels": [label]}] for n, label in enumerate(labels)]
    apart = find_marked_labels(
        pl.DataFrame({"relation_id": ["P277"] * len(labels), "objects": objects})
    )
    row = [("P277", answer)]
    texts = pl.DataFrame(row, schema("relation_id text, text text"), orient="row")
    assert read_answers(texts, apart)["answer"].to_list() == [expected]
