"""Examples of templates: which ones, and beside which."""

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.schemas import empty
from factsweep.operators.tables.runs.data_set import template_examples

rows = st.lists(
    st.tuples(
        st.sampled_from(["P1", "P2"]),
        st.none() | st.integers(0, 2),
        st.sampled_from(["manual", "paraphrase"]),
    ),
    max_size=20,
)


def facts_of(rows: list[Any]) -> Facts:
    templates = [
        {"relation_id": relation, "group": group, "origin": origin, "text": f"t{number}"}
        for number, (relation, group, origin) in enumerate(rows)
    ]
    table = pl.DataFrame(templates, schema=empty("templates").schema)
    relations = pl.DataFrame({"relation_id": ["P2", "P1"], "label": ["P2", "capital"]})
    return Facts(relations, table, empty("pairs"))


@given(rows, st.integers(1, 3), st.integers(1, 3))
def test_examples_are_the_first_of_each_relation_and_group(
    rows: list[Any], n_manual: int, n_paraphrases: int
) -> None:
    expected = []
    for relation, name in (("P2", "P2"), ("P1", "P1 capital")):
        own = [
            (f"t{i}", group, origin) for i, (r, group, origin) in enumerate(rows) if r == relation
        ]
        manual = [(text, group) for text, group, origin in own if origin == "manual"]
        for text, group in manual[:n_manual]:
            others = [t for t, g, o in own if o != "manual" and g == group and g is not None]
            expected += [(name, text, other) for other in others[:n_paraphrases] or [None]]
    table = template_examples(facts_of(rows), n_manual=n_manual, n_paraphrases=n_paraphrases)
    assert table.rows() == expected
