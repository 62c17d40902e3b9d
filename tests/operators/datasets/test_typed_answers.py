"""Dates, numbers and quantities: which answers are right, and that each form of a value is read."""

import calendar
import datetime
from decimal import Decimal

import polars as pl
import pytest
from babel.dates import format_date
from babel.numbers import format_compact_decimal, format_decimal
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.object_types import TypedObjects, n_ambiguous
from factsweep.operators.matching.dates import Date
from factsweep.operators.matching.lemmas import mark_correct, matches
from factsweep.operators.matching.quantities import Quantity
from factsweep.operators.matching.values import Kind, reader
from factsweep.operators.methods import METHODS
from factsweep.operators.schemas import empty

LANGUAGES = [
    *("ar", "de", "es", "fr", "it", "ja", "ko", "nl", "pt", "ru", "tr", "zh"),
    *("en", "pl", "cs", "sv", "fi", "el", "he", "hi", "th", "vi", "lv", "hu"),
]

# Kind, language, label: right answers, wrong answers.
CASES: list[tuple[Kind, str, str, list[str], list[str]]] = [
    ("date", "en", "1879-03-14", ["March 14, 1879", "14 March 1879.", "the 14th of March, 1879",
        "**1879-03-14**", "3/14/1879", "14/03/1879", "Mar. 14 1879, in Ulm", "on 14th Mar 1879",
        "1879/3/14", "14.3.1879", "1879-03-14T00:00:00Z",
        "born 14 March 1879, died 18 April 1955"],
        ["March 15, 1879", "1879", "March 1879", "14 March", "1979-03-14",
        "March 14, 18790", "no"]),
    ("date", "en", "1879-04-03", ["03/04/1879", "04/03/1879", "4/3/79"], ["05/03/1879"]),
    ("date", "de", "1879-04-03", ["03.04.1879", "3. April 1879", "am 3. April des Jahres 1879"],
        ["04.03.1879", "4. März 1879"]),
    ("date", "fr", "1879-01-01", ["1er janvier 1879", "le 1 janv. 1879"], ["1er février 1879"]),
    ("date", "es", "1879-03-14", ["14 de marzo de 1879", "14 de marzo del año 1879"],
        ["14 de mayo de 1879"]),
    ("date", "ja", "1879-03-14", ["1879年3月14日", "１８７９年３月１４日生"],
        ["1879年3月15日"]),
    ("date", "ru", "1879-03-14", ["14 марта 1879 г.", "14.03.1879"], ["14 мая 1879 года"]),
    ("date", "ar", "1879-03-14", ["١٤ مارس ١٨٧٩"], ["١٥ مارس ١٨٧٩"]),
    ("date", "en", "March 1879", ["March 14, 1879", "1879-03"], ["April 1879", "1879"]),
    ("date", "en", "1879", ["c. 1879", "in the year 1879", "March 14, 1879", "1870s or 1879"],
        ["the 1870s", "1879 BC", "18790", "1879.5"]),
    ("date", "en", "1500", ["1,500", "AD 1500"], ["15,001", "1500s", "1500 BC"]),
    ("date", "en", "44 BC", ["44 BCE", "-0044", "March 15, 44 B.C.", "44 before Christ"],
        ["44 AD", "44"]),
    ("date", "de", "44 v. Chr.", ["44 v.Chr.", "im Jahr 44 vor Christus"], ["44 n. Chr."]),
    ("date", "zh", "-0221", ["公元前221年", "前221年"], ["公元221年"]),
    ("number", "en", "8,849", ["8849", "8 849", "8'849", "8849.2", "about 8,849 people", "８８４９",
        "18 or 8849"],
        ["8850", "88,49", "8.849", "8.8 thousand", "8849th", "8848/8849"]),
    ("number", "de", "8.849", ["8849", "8.849", "8 849"], ["8,849", "8850"]),
    ("number", "en", "15", ["15.", "fifteen (15)"], ["1815", "COVID-15", "15 March 1815", "15:30"]),
    ("number", "hi", "1234567", ["12,34,567", "१२,३४,५६७"], ["1234568"]),
    ("number", "en", "3 million", ["3,000,000", "3.0 million", "3M"], ["3 billion", "3"]),
    ("number", "ja", "120000000", ["1億2000万人", "1.2億"], ["1億"]),
    ("number", "en", "-40", ["−40", "-40.0"], ["40"]),
    ("quantity", "en", "8,849 m", ["8849 metres", "8.849 km", "29,032 ft", "8849", "8850 m",
        "8,849m above sea level", "8849 meters (29,032 feet)", "about 8.8 thousand metres"],
        ["8849 kg", "8,849 ft", "8.849", "9000 m", "884900"]),
    ("quantity", "fr", "8849 m", ["8 849 mètres", "8,849 km"], ["8,849 m"]),
    ("quantity", "ja", "8849 m", ["8,849メートル", "8.849キロメートル"], ["8,849キロメートル"]),
    ("quantity", "en", "5.97e24 kg", ["5.97 × 10^24 kg", "5.97×10²⁴ kilograms", "6.0e27 g"],
        ["5.97 × 10^23 kg", "5.97 kg"]),
    ("quantity", "en", "37 °C", ["98.6 °F", "37 degrees Celsius"], ["37 °F"]),
    ("quantity", "en", "6 ft 2 in", ["188 cm", "1.88 m tall", "74 inches"], ["6 ft", "2 in"]),
    ("quantity", "en", "1 g/cm³", ["1000 kg/m³", "1 g/cm^3"], ["1 kg/m³"]),
    ("quantity", "en", "$3 million", ["3,000,000 US dollars", "USD 3 million"], ["€3 million"]),
    ("quantity", "en", "$5 million", ["$5m", "US$5m.", "$5M"], ["5m", "$5", "$5 mm"]),
    ("quantity", "fr", "8 849 m", ["8 849 m.", "Elle a 8 849 m."], ["8 849 mois"]),
    ("quantity", "en", "512 MB", ["512 mb", "It has 512 mb."], ["521 mb", "512 m"]),
    ("number", "en", "1066", ["October 1066", "14 October 1066"], ["14 October 1067", "10/66"]),
    ("quantity", "en", "50 %", ["50 percent", "50%"], ["5%", "0.5"]),
]  # fmt: skip


def typed(kind: Kind, language: str, label: str, answers: list[str]) -> pl.DataFrame:
    """The answers with their keys, and whether each is right; lemmas match nothing here."""
    objects = TypedObjects({"pair": kind}, language, 0.01)
    labels = pl.DataFrame({"pair_id": ["pair"], "text": [label], "key": "\x1flabel\x1f"})
    rows = pl.DataFrame({"pair_id": "pair", "text": answers, "key": "\x1f?\x1f"})
    return mark_correct(objects.add_value_keys(rows, labels), objects.label_keys(labels))


def test_answers_in_many_forms_are_right_by_their_value(subtests: pytest.Subtests) -> None:
    for kind, language, label, right, wrong in CASES:
        rows = typed(kind, language, label, [*right, *wrong])
        for text, is_right in rows.select("text", "correct").iter_rows():
            with subtests.test(f"{label} ({language}): {text}"):
                assert is_right == (text in right)


def test_answer_that_is_a_label_is_right_though_the_label_is_no_value() -> None:
    labels = ["1066-10-14", "Hastings Day 1066", "autumn 1066", "the 1060s"]
    objects = [{"object_id": "a", "labels": labels}]
    rows = {"pair_id": "p", "relation_id": "r", "subject_id": "s", "subjects": [["s"]]}
    pairs = pl.DataFrame({**rows, "objects": [objects]})
    typed_objects = TypedObjects({"p": "date"}, "en", 0.01)
    facts = Facts(empty("relations"), empty("templates"), pairs, typed=typed_objects)
    texts = [*labels, "It was in autumn 1066.", "autumn 1067", "1066-10-15"]
    answers = pl.DataFrame({"prompt_id": texts, "pair_id": "p", "relation_id": "r", "text": texts})
    matcher = METHODS["belief"].measure.matcher(facts, "blank", object)
    decoded_again = {name: empty(name) for name in ("canary", "p_true", "verbalised")}
    samples = answers.select("prompt_id", "text")
    tables = matcher(answers, {"samples": samples, **decoded_again})
    assert tables["answers"]["correct"].to_list() == [True] * 5 + [False] * 2
    assert tables["calibration"]["confidence"].to_list() == [1.0] * 7


def test_date_exists_where_the_longest_year_has_its_day() -> None:
    for month in range(1, 13):
        longest = calendar.monthrange(2000, month)[1]
        existing = [day for day in range(35) if Date(1879, month, day).exists]
        assert existing == [*range(longest + 1)], month
    assert Date(1879, 0, 0).exists
    assert not Date(1879, 13, 1).exists


@given(
    st.dates(datetime.date(1700, 1, 1), datetime.date(2099, 12, 31)),
    st.sampled_from(LANGUAGES),
    st.sampled_from(["short", "medium", "long", "full"]),
)
def test_date_in_any_form_of_its_language_denotes_itself(
    day: datetime.date, language: str, form: str
) -> None:
    (value,) = reader(language).find("date", f"{format_date(day, form, locale=language)}")
    assert Date(day.year, day.month, day.day) in value.readings


@given(st.integers(-(10**9), 10**9), st.integers(0, 3), st.sampled_from(LANGUAGES))
def test_number_in_the_form_of_its_language_equals_itself(
    digits: int, n_decimals: int, language: str
) -> None:
    number = Decimal(digits).scaleb(-n_decimals)
    (value,) = reader(language).find("number", format_decimal(number, locale=language))
    assert value.readings == (Quantity(number),)


@given(st.integers(2, 999), st.sampled_from([3, 6, 9]), st.sampled_from(LANGUAGES))
def test_number_with_a_word_for_its_size_equals_itself(
    digits: int, power: int, language: str
) -> None:
    text = format_compact_decimal(digits * 10**power, format_type="long", locale=language,
                                  fraction_digits=6)  # fmt: skip
    (value,) = reader(language).find("number", text)
    assert value.readings == (Quantity(Decimal(digits * 10**power)),)


def test_two_answers_match_when_their_values_agree() -> None:
    texts = ["5000 m", "5 km", "16,404 ft", "6000 m", "8849 metres", "8.85 km"]
    keys = typed("quantity", "en", "8,849 m", texts)["key"]
    rows = (
        keys.to_frame("a")
        .with_row_index()
        .join(keys.to_frame("b").with_row_index("n"), how="cross")
    )
    agree = rows.filter(matches(pl.col("a"), pl.col("b"))).select("index", "n").rows()
    groups = [(0, 1, 2), (3,), (4, 5)]
    assert sorted(agree) == sorted((a, b) for group in groups for a in group for b in group)


def test_answer_without_a_value_keeps_its_lemmas_and_dates_in_two_ways_are_counted() -> None:
    rows = typed("date", "en", "1879-03-14", ["in spring", "03/04/1879", "4/4/1879", "May 1879"])
    assert rows["key"][0] == "\x1f?\x1f"
    assert n_ambiguous(rows["key"]) == 1


def test_texts_that_hold_more_than_a_value_are_names() -> None:
    for text in ("10 Downing Street", "May", "007", "Apollo 11", "1984 (novel)", "24x"):
        assert not any(reader("en").whole(kind, text) for kind in ("date", "number", "quantity"))
