"""The ids of objects, which not every data set gives."""

import polars as pl

from factsweep.operators.datasets.knowledge_base import object_id


def test_object_without_an_id_has_that_of_its_first_label() -> None:
    rows = pl.DataFrame({"object_id": ["Q90", None], "labels": [["Paris"], ["Rome", "Roma"]]})
    assert rows.select(object_id()).to_series().to_list() == ["Q90", "Rome"]
