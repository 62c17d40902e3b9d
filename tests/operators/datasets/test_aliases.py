"""Aliases from another file: what lacks the ids by which they are found is refused."""

import polars as pl
import pytest

from factsweep.operators.datasets.layouts import with_aliases
from factsweep.operators.errors import InputError
from tests.messages import naming


def test_rows_without_the_ids_of_aliases_are_refused() -> None:
    labels = pl.DataFrame({"entity_id": ["Q142"], "labels": [["France", "Gaul"]]})
    rows = pl.LazyFrame({"sub_uri": ["Q142"]})
    with pytest.raises(InputError, match=naming("obj_aliases", "no column obj_uris")):
        with_aliases(rows, "obj_aliases", labels)
