"""How many distractors the facts of a set have."""

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.tables.runs.data_set import distractors_by_relation


def test_distractors_by_relation_of_the_mini_set_add_up(distractors_mini: Facts) -> None:
    table = distractors_by_relation(distractors_mini)
    whole = table.row(-1, named=True)
    assert table.height == 18
    assert (whole["n_facts"], whole["n_without"], whole["n_sharing"]) == (400, 1, 4)
    assert table["n_facts"].head(17).sum() == 400
    assert (
        whole["n_same_type"] - whole["n_right"] - whole["n_sharing"] == whole["n_distractors"] > 0
    )
