"""What is condensed relation by relation gives the numbers of all answers at once."""

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.belief import Options
from factsweep.operators.methods.method import Evidence, Measure, Tables
from factsweep.operators.schemas import empty

OPTIONS = Options(
    n_draws=20,
    n_rounds=5,
    n_bins=3,
    analyses=("template_spread", "subject_template", "manual_paraphrase", "ovconf_by_length"),
)
FAILED = pl.DataFrame({"relation_id": ["P00", "P9"], "n_failed": [2, 1]})
IDS = ("relation_id", "pair_id", "template_id")
CANARY = ("prompt_id", "n_tokens", "logprob")


def facts(answers: pl.DataFrame) -> Facts:
    number = pl.int_range(pl.len())
    templates = answers.select("template_id", "relation_id").unique(maintain_order=True)
    templates = templates.with_columns(
        origin=pl.when(number % 2 == 0).then(pl.lit("manual")).otherwise(pl.lit("paraphrase")),
        group=(number % 3).cast(pl.UInt16),
    )
    details = answers.select("pair_id").unique(maintain_order=True)
    details = details.with_columns(
        popularity=number.cast(pl.Float64), sample=pl.when(number % 3 > 0).then(pl.lit("s"))
    ).with_columns(pl.col("sample").fill_null("other"))
    return Facts(empty("relations"), templates, empty("pairs"), extra_tables={"details": details})


def matched(answers: pl.DataFrame, measure: Measure) -> Tables:
    confidence = (pl.int_range(pl.len()) * 37 % 100).cast(pl.Float64) / 100
    first = answers.unique("pair_id", keep="first", maintain_order=True)
    tables = {
        "answers": answers,
        "calibration": first.select(*IDS[:2], "prompt_id", "correct", confidence=confidence),
    }
    return {table: tables.get(table, empty(table)) for table in measure.matched}


def of(tables: Tables, relations: Sequence[str]) -> Tables:
    return {
        name: rows.filter(pl.col("relation_id").is_in(relations))
        if "relation_id" in rows.columns
        else rows
        for name, rows in tables.items()
    }


def computed(
    measure: Measure, groups: Sequence[Tables], about: Facts, first: pl.DataFrame
) -> Tables:
    """The numbers of what each group of relations is condensed to."""
    condensed = [
        measure.condense(group, first.select("prompt_id"), about, OPTIONS) for group in groups
    ]
    tables = {name: pl.concat([part[name] for part in condensed]) for name in condensed[0]}
    second_answers = first.select(
        "prompt_id", n_tokens=pl.int_range(pl.len()) % 4, logprob=-pl.int_range(pl.len()) / 7
    )
    evidence = Evidence(about, None, tables, FAILED, FAILED, second_answers, OPTIONS, seed=1)
    return measure.compute(evidence)


@pytest.mark.parametrize("method", ["belief", "belief-masked"])
@given(data=st.data())
def test_condense_in_any_grouping_of_relations_gives_the_numbers_of_all_at_once(
    method: str, data: st.DataObject, answer_tables: st.SearchStrategy[pl.DataFrame]
) -> None:
    parts = [
        data.draw(answer_tables).with_columns(pl.col(IDS).str.replace("P", f"P{number}"))
        for number in range(2)
    ]
    answers = pl.concat(parts).with_columns(
        prompt_id=pl.concat_str("pair_id", "template_id", "subject_index", separator="/")
    )
    measure, about = METHODS[method].measure, facts(answers)
    tables, first = (
        matched(answers, measure),
        answers.unique("pair_id", keep="first", maintain_order=True),
    )
    relations = data.draw(st.permutations(["P00", "P01", "P10", "P11"]))
    cuts = sorted(data.draw(st.sets(st.integers(1, 3))))
    ends = zip([0, *cuts], [*cuts, 4], strict=True)
    groups = [of(tables, relations[start:end]) for start, end in ends]
    coded = answers.cast(dict.fromkeys(measure.categories, pl.Categorical()))
    groups[0] |= of({"answers": coded}, relations[: cuts[0] if cuts else 4])
    expected = computed(measure, [tables], about, first)
    for name, rows in computed(measure, groups, about, first).items():
        assert rows.equals(expected[name])
