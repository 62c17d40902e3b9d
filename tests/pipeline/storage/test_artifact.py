"""Artifacts: names that follow their recipe, and shards that are whole or refused."""

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from operators.errors import DamagedFileError, InputError
from pipeline.storage.artifact import Artifact, Recipe, decode, differences, encode, find
from pipeline.storage.store import Store

RECIPE = Recipe("relations", 1, {"seed": 0, "sampling": {"n": 1}}, {"facts": "f0"})
ROWS = pl.DataFrame({"relation_id": ["P36", "P30"], "label": ["capital", "continent"]})

Damage = Callable[[bytes], bytes]


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return Artifact(Store(str(tmp_path)), RECIPE)


def shard_path(artifact: Artifact) -> Path:
    return Path(artifact.store.where(f"{artifact.folder}/relations/all.parquet"))


def flipped(content: bytes) -> bytes:
    """One bit of the first page's data is another."""
    chunk = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    place = chunk.data_page_offset + chunk.total_compressed_size - 1
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, stage="templates"),
        replace(RECIPE, version=2),
        replace(RECIPE, fields={"seed": 1, "sampling": {"n": 1}}),
        replace(RECIPE, fields={"seed": 0, "sampling": {"n": 25}}),
        replace(RECIPE, fields={"seed": 0}),
        replace(RECIPE, inputs={"facts": "f1"}),
        replace(RECIPE, inputs={"prompts": "f0"}),
    ],
)
def test_fingerprint_one_field_changed_is_another(other: Recipe) -> None:
    assert other.fingerprint != RECIPE.fingerprint


def test_fingerprint_keys_in_another_order_is_the_same() -> None:
    turned = replace(RECIPE, fields={"sampling": {"n": 1}, "seed": 0})
    assert turned.fingerprint == RECIPE.fingerprint


def test_fingerprint_texts_that_differ_in_what_is_no_secret_by_its_name_are_others() -> None:
    first, second = (Recipe("facts", 1, {"relations": {"token": each}}) for each in ("a", "b"))
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("secret", ["hf_plantedPlantedPlanted", "s3://me:short@bucket"])
def test_recipe_that_holds_a_secret_is_refused(secret: str) -> None:
    recipe = Recipe("generations", 1, {"model": {"engine": {"path": secret}}})
    with pytest.raises(InputError, match=r"^model\.engine\.path holds what looks like a secret"):
        recipe.to_json()


def test_fingerprint_known_recipe_never_changes() -> None:
    assert Recipe("facts", 1, {"a": "é"}).fingerprint == "fb215e6ba873d81c"


def test_decode_encoded_frame_is_the_same_frame() -> None:
    content = encode(ROWS, "relations", "f1", {})
    assert_frame_equal(decode(content, "relations", "f1", "here"), ROWS)


def test_footer_has_rows_and_counts_before_and_after_the_manifest(artifact: Artifact) -> None:
    counts = {"seconds": 1.5, "model": "tiny"}
    artifact.write("relations", "all", ROWS, counts)
    assert artifact.footer("relations", "all") == (ROWS.height, counts)
    assert artifact.counts("relations") == {"all": counts}
    artifact.finish(["relations"])
    assert artifact.counts("relations") == {"all": counts}


def test_footer_truncated_shard_is_named(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    name = f"{artifact.folder}/relations/all.parquet"
    artifact.store.put(name, artifact.store.get(name)[:50])
    with pytest.raises(DamagedFileError, match=r"all\.parquet is not a whole Parquet file"):
        artifact.footer("relations", "all")


def test_decode_frame_without_rows_has_the_columns() -> None:
    content = encode(ROWS.clear(), "relations", "f1", {})
    assert_frame_equal(decode(content, "relations", "f1", "here"), ROWS.clear())


def test_encode_missing_column_names_table_and_column() -> None:
    with pytest.raises(InputError, match="table relations: column label is missing"):
        encode(ROWS.drop("label"), "relations", "f1", {})


def test_encode_wrong_type_names_the_table() -> None:
    wrong = ROWS.with_columns(label=pl.struct("relation_id"))
    with pytest.raises(InputError, match="table relations: "):
        encode(wrong, "relations", "f1", {})


DAMAGES: dict[str, Damage] = {
    "cut": lambda content: content[: len(content) // 2],
    "cut short of a byte": lambda content: content[:-1],
    "empty": lambda _: b"",
    "text": lambda _: b"no Parquet file at all",
    "bit flipped": flipped,
    "another artifact's": lambda _: encode(ROWS, "relations", "f1", {}),
    "another table's": lambda _: encode(
        pl.DataFrame({"pair_id": ["P1.Q1"], "prompt_id": "p", "relation_id": "P1", "text": "x"}),
        "given",
        RECIPE.fingerprint,
        {},
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_read_damaged_shard_names_file_and_fix(artifact: Artifact, damage: Damage) -> None:
    artifact.write("relations", "all", ROWS)
    path = shard_path(artifact)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedFileError) as error:
        artifact.read("relations", "all")
    assert str(error.value).startswith(f"{path} ")
    assert str(error.value).endswith("set it aside and run again: only this shard is recomputed.")


@pytest.mark.parametrize("bit", [0, 7])
def test_decode_any_bit_flipped_is_refused_or_changes_nothing(bit: int) -> None:
    content = encode(ROWS, "relations", "f1", {"seconds": 1.5})
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        with contextlib.suppress(DamagedFileError):
            assert decode(bytes(damaged), "relations", "f1", "here").equals(ROWS)


def test_read_parquet_of_somebody_else_says_it_belongs_elsewhere(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    ROWS.write_parquet(shard_path(artifact))
    with pytest.raises(DamagedFileError, match=r"belongs elsewhere: its footer says .* nothing"):
        artifact.read("relations", "all")


def test_read_footer_with_other_row_count_is_refused(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    table = pq.read_table(shard_path(artifact))
    pq.write_table(table.slice(0, 1), shard_path(artifact))
    with pytest.raises(DamagedFileError, match=r"factsweep\.rows 2, not 1"):
        artifact.read("relations", "all")


def test_read_other_columns_under_the_right_footer_is_refused(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    table = pq.read_table(shard_path(artifact))
    renamed = table.rename_columns(["label", "relation_id"])
    pq.write_table(renamed.replace_schema_metadata(table.schema.metadata), shard_path(artifact))
    with pytest.raises(DamagedFileError, match="has another schema than table relations"):
        artifact.read("relations", "all")


def test_artifact_without_manifest_is_not_complete(artifact: Artifact) -> None:
    artifact.begin()
    artifact.write("relations", "all", ROWS)
    assert not artifact.is_complete()
    assert artifact.shards("relations") == ["all"]


def test_artifact_manifest_is_the_last_file(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    for publish in (Store.put, Store.put_new):

        def noted(self: Store, name: str, content: bytes, publish: Any = publish) -> Any:
            names.append(name)
            return publish(self, name, content)

        monkeypatch.setattr(Store, publish.__name__, noted)
    artifact.begin()
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    files = ["recipe.json", "relations/all.parquet", "manifest.json"]
    assert names == [f"{artifact.folder}/{file}" for file in files]


def test_manifest_finished_artifact_says_rows_bytes_and_counts(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"], {"relations": 2})
    entry = artifact.manifest()["tables"]["relations"]["all"]
    assert (entry["rows"], entry["bytes"]) == (2, shard_path(artifact).stat().st_size)
    assert artifact.rows("relations") == {"all": 2}
    assert artifact.manifest()["counts"] == {"relations": 2}


def test_read_all_several_shards_are_joined_by_name(artifact: Artifact) -> None:
    artifact.write("relations", "b", ROWS[1:])
    artifact.write("relations", "a", ROWS[:1])
    assert_frame_equal(artifact.read_all("relations"), ROWS)


def test_read_all_no_shards_has_the_columns(artifact: Artifact) -> None:
    assert_frame_equal(artifact.read_all("relations"), ROWS.clear())


def test_write_chunk_is_read_back_and_is_no_shard(artifact: Artifact) -> None:
    artifact.write_chunk("relations", "chunks/relations/all", "c1", ROWS)
    assert_frame_equal(artifact.read_chunk("relations", "chunks/relations/all", "c1"), ROWS)
    assert artifact.shards("relations") == []


def test_settled_value_stays_what_it_was_first(artifact: Artifact) -> None:
    assert artifact.settled("rows_per_shard", 7) == 7
    assert artifact.settled("rows_per_shard", 100) == 7


def test_set_aside_damaged_shard_opens_the_artifact(artifact: Artifact) -> None:
    artifact.begin()
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    assert not artifact.is_open()
    artifact.set_aside(f"{artifact.folder}/relations/all.parquet")
    assert artifact.is_open()
    assert artifact.shards("relations") == []


def test_find_start_of_a_fingerprint_gives_folder_and_recipe(artifact: Artifact) -> None:
    artifact.begin()
    folder, recipe = find(artifact.store, RECIPE.fingerprint[:6])
    assert folder == f"relations/{RECIPE.fingerprint}"
    assert recipe == json.loads(RECIPE.to_json())


def test_find_folder_as_printed_is_found(artifact: Artifact) -> None:
    artifact.begin()
    assert find(artifact.store, f"{artifact.folder}/")[0] == artifact.folder


@pytest.mark.parametrize(("prefix", "n"), [("", 2), ("zz", 0)])
def test_find_not_exactly_one_says_how_many(artifact: Artifact, prefix: str, n: int) -> None:
    artifact.begin()
    Artifact(artifact.store, replace(RECIPE, version=2)).begin()
    with pytest.raises(InputError, match=rf"^{n} artifacts in .* start with '{prefix}'"):
        find(artifact.store, prefix)


def test_differences_two_recipes_names_the_fields() -> None:
    other = replace(RECIPE, version=2, fields={"sampling": {"n": 25}, "dtype": "float32"})
    found = differences(*(json.loads(recipe.to_json()) for recipe in (RECIPE, other)))
    assert list(found) == [
        'fields.dtype: null → "float32"',
        "fields.sampling.n: 1 → 25",
        "fields.seed: 0 → null",
        "version: 1 → 2",
    ]


def test_differences_same_recipe_is_nothing() -> None:
    recipe = json.loads(RECIPE.to_json())
    assert list(differences(recipe, recipe)) == []
