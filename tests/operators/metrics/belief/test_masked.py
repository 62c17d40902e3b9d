"""What encoder models alone have, against scipy's entropy and comparing name by name."""

from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.metrics.belief.masked import (
    EACH,
    MULTI,
    bias_level,
    count_gains,
    extended_entities,
    left_out_rows,
)
from factsweep.operators.prompts.masked import count_left_out, label_tokens
from factsweep.operators.schemas import schema

# Relation → template → prompts, each the probabilities of the relation's candidates.
Relation = list[list[list[float]]]
PROBABILITY = st.floats(2**-20, 1, width=32)


@st.composite
def relations(draw: st.DrawFn) -> list[Relation]:
    def relation() -> Relation:
        n = draw(st.integers(2, 5))
        prompt = st.lists(st.one_of(st.just(0.0), PROBABILITY), min_size=n, max_size=n).filter(any)
        template = st.lists(prompt, min_size=1, max_size=3)
        return draw(st.lists(template, min_size=1, max_size=3))

    return [relation() for _ in range(draw(st.integers(1, 3)))]


def content_free(relations: list[Relation]) -> pl.DataFrame:
    rows = [
        (f"P{r}", f"P{r}.{t}", prompt)
        for r, relation in enumerate(relations)
        for t, template in enumerate(relation)
        for prompt in template
    ]
    columns = schema("relation_id text, template_id text, probabilities float[]")
    return pl.DataFrame(rows, columns, orient="row")


def level(distribution: np.ndarray) -> float:
    return float(1 - entropy(distribution) / np.log(len(distribution)))


def values(rows: pl.DataFrame, variant: str | None) -> dict[str | None, float]:
    variant_rows = rows.filter(pl.col("variant").eq_missing(pl.lit(variant)))
    return dict(variant_rows.select("slice", "value").iter_rows())


@given(drawn=relations(), scale=st.floats(0.01, 1))
def test_bias_level_any_distributions_equals_scipys_entropy(
    drawn: list[Relation], scale: float
) -> None:
    rows = bias_level(content_free(drawn))
    means = [
        [np.mean([np.array(p) / sum(p) for p in template], axis=0) for template in relation]
        for relation in drawn
    ]
    single = [list(map(level, of_relation)) for of_relation in means]
    multi = [level(np.mean(of_relation, axis=0)) for of_relation in means]
    names = [f"relation=P{r}" for r in range(len(drawn))]
    expected = {
        None: np.mean([value for levels in single for value in levels]),
        **dict(zip(names, map(np.mean, single), strict=True)),
    }
    assert values(rows, None) == pytest.approx(expected, abs=1e-9)
    of_all = {None: np.mean(multi), **dict(zip(names, multi, strict=True))}
    assert values(rows, MULTI) == pytest.approx(of_all, abs=1e-9)
    for part in names:  # more templates never add bias
        assert of_all[part] <= expected[part] + 1e-9
    scaled = content_free(drawn).with_columns(pl.col("probabilities") * scale)
    assert bias_level(scaled)["value"].to_list() == pytest.approx(rows["value"].to_list(), abs=1e-9)


def test_bias_level_too_few_candidates_and_impossible_prompts_are_left_out() -> None:
    levels = bias_level(content_free([[[[0.3]]], [[[]]], [[[0.2, 0.2]]]]))
    expected = {"relation=P0": None, "relation=P1": None, "relation=P2": pytest.approx(0.0)}
    assert values(levels, None) == {None: pytest.approx(0.0), **expected}
    impossible = bias_level(content_free([[[[0.0, 0.0], [0.3, 0.3]], [[0.0, 0.0]]]]))
    assert values(impossible, None)["relation=P0"] == pytest.approx(0.0)
    assert bias_level(content_free([]))["value"].to_list() == [None, None]


# (pair, template, name, object, label) → probability
Cells = dict[tuple[int, int, int, int, int], float]
CELL = st.tuples(*(st.integers(0, n) for n in (2, 1, 2, 1, 2)))
CELLS = st.dictionaries(CELL, st.sampled_from([0.0, 0.1, 0.2, 0.3]), max_size=40)


def counted(cells: Cells) -> pl.DataFrame:
    rows = [
        (f"P{p % 2}", f"P{p % 2}.Q{p}", f"P{p % 2}.{t}", s, f"O{o}", label, probability)
        for (p, t, s, o, label), probability in cells.items()
    ]
    columns = schema("""
        relation_id text, pair_id text, template_id text, subject_index uint16, object_id text,
        label_index uint16, probability float
    """)
    return count_gains(pl.DataFrame(rows, columns, orient="row"))


def naive_gains(cells: Cells, place: int) -> list[list[bool]]:
    """Of each unit, whether its aliases gain; those of the name or label at this place of a cell.

    Names are compared by the label of the object alone.
    """
    units = []
    for cell in product(range(3), range(2), range(3), range(2), range(1 if place == 2 else 3)):
        if cell[place]:
            continue
        aliases = [(*cell[:place], alias, *cell[place + 1 :]) for alias in (1, 2)]
        probabilities = [cells[alias] for alias in aliases if alias in cells]
        if cell in cells and probabilities:
            units.append([probability > cells[cell] for probability in probabilities])
    return units


@given(cells=CELLS)
def test_extended_entities_any_probabilities_equal_naive_comparison(cells: Cells) -> None:
    rows = extended_entities(counted(cells), seed=1, n_rounds=5).filter(pl.col("slice").is_null())
    shares = {
        (metric, variant): value
        for metric, variant, value in rows.select("metric", "variant", "value").iter_rows()
    }
    for name, place in (("subject", 2), ("object", 4)):
        units = naive_gains(cells, place)
        some = mean(map(any, units)) if units else None
        by_alias = mean(hit for unit in units for hit in unit) if units else None
        assert shares[f"extended_{name}", None] == pytest.approx(some)
        assert shares[f"extended_{name}", EACH] == pytest.approx(by_alias)


def test_left_out_is_a_share_of_labels_objects_and_pairs(mini: Facts, tiny_bert: Any) -> None:
    labels = label_tokens(mini, tiny_bert.tokenizer)
    rows = left_out_rows(count_left_out(labels))
    overall = rows.filter(pl.col("slice").is_null())
    shares = {row["metric"]: (row["value"], row["n"]) for row in overall.iter_rows(named=True)}
    for unit, ids in (("objects", ["pair_id", "object_id"]), ("pairs", ["pair_id"])):
        token_counts = labels.group_by(ids).agg(pl.col("token_id").count())
        expected = (token_counts["token_id"] == 0).mean()
        assert shares[f"{unit}_left_out"] == (pytest.approx(expected), token_counts.height)
    assert 0 < shares["pairs_left_out"][0] <= shares["objects_left_out"][0] < 1
    by_relation = rows.drop_nulls("slice").group_by("metric", maintain_order=True)
    summed = by_relation.agg(value=(pl.col("value") * pl.col("n")).sum() / pl.col("n").sum())
    assert summed["value"].to_list() == pytest.approx(overall["value"].to_list())
