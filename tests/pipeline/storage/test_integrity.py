"""What was made of an artifact fits it while its values are the same, however they are packed.

What is done to a whole run's store is in `tests/pipeline/test_reads.py`.
"""

from pathlib import Path

import polars as pl
import pytest

from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import misfits
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.store import Store
from tests.pipeline.damage import change_entry, made_anew, pack_otherwise

ROWS = pl.DataFrame({"relation_id": ["P36", "P30"], "label": ["capital", "continent"]})
OTHERS = ROWS[::-1]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Artifact, Artifact]:
    """An artifact, and another that was made of it."""
    store = Store(str(tmp_path))
    source, product = (Artifact(store, Recipe("relations", n, {})) for n in (1, 2))
    source.begin()
    source.write("relations", "all", ROWS)
    source.finish(["relations"])
    product.begin()
    product.write("relations", "all", ROWS)
    product.finish(["relations"], made_of=[source])
    return source, product


def sentences(*artifacts: Artifact) -> list[str]:
    by_folder = {each.folder: each for each in artifacts}
    return [found.sentence for found in misfits(by_folder, {}, {})]


def test_misfits_same_values_fit_however_they_are_packed(
    made: tuple[Artifact, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, product = made
    before = source.manifest().pin
    pack_otherwise(monkeypatch)
    made_anew(source, ROWS)
    assert source.manifest().pin.digest != before.digest
    assert source.manifest().pin.values == before.values
    assert sentences(source, product) == []


def test_misfits_other_values_fit_nothing(made: tuple[Artifact, Artifact]) -> None:
    source, product = made
    made_anew(source, OTHERS)
    (said,) = sentences(source, product)
    assert said.startswith(f"{source.store.where(source.folder)} is not what ")


def test_misfits_other_values_under_the_digest_of_the_first_fit_nothing(
    made: tuple[Artifact, Artifact],
) -> None:
    source, product = made
    digest = source.manifest().tables["relations"]["all"].values
    made_anew(source, OTHERS)
    path = Path(source.store.where(f"{source.folder}/relations/all.parquet"))
    change_entry(path, {"values": digest})
    source.forget()
    assert source.is_complete()
    (said,) = sentences(source, product)
    assert said.startswith(f"{source.store.where(source.folder)} is not what ")
