"""Artifacts: shards that are whole or refused, and a manifest that comes last."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.schemas import conform
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import set_aside
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.shard import Place, encode
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.values import digest
from tests.messages import naming

RECIPE = Recipe("relations", 1, {"seed": 0, "sampling": {"n": 1}}, {"facts": "f0"})
ROWS = pl.DataFrame({"relation_id": ["P36", "P30"], "label": ["capital", "continent"]})

Damage = Callable[[bytes], bytes]


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return Artifact(Store(str(tmp_path)), RECIPE)


def shard_path(artifact: Artifact) -> Path:
    return Path(artifact.store.where(f"{artifact.folder}/relations/all.parquet"))


def test_footer_has_rows_and_counts_before_and_after_the_manifest(artifact: Artifact) -> None:
    counts = {"seconds": 1.5, "model": "tiny"}
    artifact.write("relations", "all", ROWS, counts)
    assert artifact.footer("relations", "all")[:2] == (ROWS.height, counts)
    assert artifact.counts("relations") == {"all": counts}
    artifact.finish(["relations"])
    assert artifact.counts("relations") == {"all": counts}


def test_footer_truncated_shard_is_named(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    name = f"{artifact.folder}/relations/all.parquet"
    artifact.store.put(name, artifact.store.get(name)[:50])
    with pytest.raises(DamagedFileError, match=naming("all.parquet")):
        artifact.footer("relations", "all")


DAMAGES: dict[str, Damage] = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "another artifact's": lambda _: encode(ROWS, Place("relations", "f1", "relations/all")),
    "another number": lambda _: encode(
        ROWS[::-1], Place("relations", RECIPE.fingerprint, "relations/all")
    ),
}


@pytest.mark.parametrize("is_complete", [False, True])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_read_damaged_shard_names_file_and_fix(
    artifact: Artifact, damage: Damage, *, is_complete: bool
) -> None:
    artifact.write("relations", "all", ROWS)
    path = shard_path(artifact)
    if is_complete:
        artifact.finish(["relations"])
    content = damage(path.read_bytes())
    if not is_complete and content == DAMAGES["another number"](b""):
        return  # whoever writes a shard of an open artifact by our own code has published it
    path.write_bytes(content)
    with pytest.raises(DamagedFileError) as error:
        artifact.read("relations", "all")
    assert str(error.value).startswith((f"{path} ", f"the footer of {path} "))
    assert "factsweep verify --all --repair" in str(error.value)


def test_read_shard_gone_is_named(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    shard_path(artifact).unlink()
    with pytest.raises(DamagedFileError, match=naming("all.parquet")):
        artifact.read("relations", "all")


def test_shards_complete_artifact_are_those_of_the_manifest(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    shutil.copy(shard_path(artifact), shard_path(artifact).with_name("more.parquet"))
    assert artifact.shards("relations") == ["all"]


def test_finish_shard_that_was_not_written_here_is_refused(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    shutil.copy(shard_path(artifact), shard_path(artifact).with_name("more.parquet"))
    with pytest.raises(DamagedFileError, match=naming("more.parquet")):
        artifact.finish(["relations"])


def test_finish_shard_that_is_missing_is_refused(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    with pytest.raises(DamagedFileError, match=naming("other.parquet")):
        artifact.finish(["relations"], of={"relations": ["all", "other"]})


def test_finish_damaged_shard_of_an_earlier_run_is_refused(artifact: Artifact) -> None:
    Artifact(artifact.store, RECIPE).write("relations", "all", ROWS)
    shard_path(artifact).write_bytes(b"half a shard")
    with pytest.raises(DamagedFileError, match=naming("whole", "Parquet")):
        artifact.finish(["relations"], of={"relations": ["all"]})


def test_finish_shard_exchanged_since_it_was_written_is_refused_when_read(
    artifact: Artifact,
) -> None:
    artifact.write("relations", "all", ROWS)
    other = encode(ROWS[::-1], Place("relations", RECIPE.fingerprint, "relations/all"))
    shard_path(artifact).write_bytes(other)
    artifact.finish(["relations"])
    with pytest.raises(DamagedFileError, match=naming("all.parquet")):
        artifact.read("relations", "all")


def test_finish_lists_what_was_written_as_what_is_read(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS, {"seconds": 1.5, "model": "gpt2"})
    artifact.finish(["relations"])
    written = artifact.manifest().tables
    Path(artifact.store.root, artifact.folder, "manifest.json").unlink()
    again = Artifact(artifact.store, RECIPE)
    again.write("relations", "all", ROWS[::-1])  # it is there, so this is not published
    again.finish(["relations"])
    assert again.manifest().tables == written


def test_finish_shard_of_an_older_version_gets_the_digest_of_its_values(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("factsweep.pipeline.storage.values.digest", lambda _: "")
        Artifact(artifact.store, RECIPE).write("relations", "all", ROWS)
    artifact.finish(["relations"], of={"relations": ["all"]})
    entry = artifact.manifest().tables["relations"]["all"]
    assert entry.values == digest(conform(ROWS, "relations"))


def test_finish_pins_what_it_was_made_of(artifact: Artifact) -> None:
    source = Artifact(artifact.store, replace(RECIPE, version=2))
    for each in (source, artifact):
        each.write("relations", "all", ROWS)
    source.finish(["relations"])
    artifact.finish(["relations"], made_of=[source])
    assert artifact.manifest().inputs == {source.folder: source.manifest().pin}


def test_manifest_same_rows_computed_anew_has_the_same_digest(artifact: Artifact) -> None:
    pins = []
    for seconds in (1.5, 2.5):
        set_aside(artifact, f"{artifact.folder}/relations/all.parquet")
        artifact.write("relations", "all", ROWS, {"seconds": seconds})
        artifact.finish(["relations"])
        pins.append(artifact.manifest().pin)
    assert pins[0].digest == pins[1].digest
    assert pins[0].made != pins[1].made


def test_manifest_other_rows_has_another_digest(artifact: Artifact) -> None:
    digests = set()
    for rows in (ROWS, ROWS[::-1]):
        set_aside(artifact, f"{artifact.folder}/relations/all.parquet")
        artifact.write("relations", "all", rows)
        artifact.finish(["relations"])
        digests.add(artifact.manifest().pin.digest)
    assert len(digests) == 2


def test_read_shard_computed_anew_by_another_process_is_read(artifact: Artifact) -> None:
    other = Artifact(artifact.store, RECIPE)
    for seconds in (1.5, 2.5):
        set_aside(artifact, f"{artifact.folder}/relations/all.parquet")
        artifact.write("relations", "all", ROWS, {"seconds": seconds})
        artifact.finish(["relations"])
        assert other.read("relations", "all").equals(ROWS)


def test_read_other_rows_computed_meanwhile_is_refused(artifact: Artifact) -> None:
    other = Artifact(artifact.store, RECIPE)
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    other.read("relations", "all")
    set_aside(artifact, f"{artifact.folder}/relations/all.parquet")
    artifact.write("relations", "all", ROWS[::-1])
    artifact.finish(["relations"])
    with pytest.raises(InputError, match=naming("run again")):
        other.read("relations", "all")


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
    entry = artifact.manifest().tables["relations"]["all"]
    assert (entry.rows, entry.bytes) == (2, shard_path(artifact).stat().st_size)
    assert artifact.rows("relations") == {"all": 2}
    assert artifact.manifest().counts == {"relations": 2}


def test_read_all_several_shards_are_joined_by_name(artifact: Artifact) -> None:
    artifact.write("relations", "b", ROWS[1:])
    artifact.write("relations", "a", ROWS[:1])
    assert_frame_equal(artifact.read_all("relations"), ROWS)


@pytest.mark.parametrize("complete", [True, False])
def test_read_some_columns_has_these_alone_and_checks_all(
    artifact: Artifact, complete: bool
) -> None:
    artifact.write("relations", "all", ROWS)
    if complete:
        artifact.finish(["relations"])
    assert artifact.read("relations", "all", ["label"]).equals(ROWS.select("label"))
    others = ROWS.with_columns(relation_id=pl.lit("P37"))
    place = Place("relations", artifact.fingerprint, "relations/all")
    edited, whole = (encode(each, place) for each in (others, ROWS))
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    shard_path(artifact).write_bytes(edited[: len(edited) - footer] + whole[-footer:])
    with pytest.raises(DamagedFileError):
        artifact.read("relations", "all", ["label"])


def test_read_all_no_shards_has_the_columns(artifact: Artifact) -> None:
    assert_frame_equal(artifact.read_all("relations"), ROWS.clear())


def test_write_chunk_is_read_back_and_is_no_shard(artifact: Artifact) -> None:
    artifact.write_chunk("relations", "chunks/relations/all", "c1", ROWS)
    found, _ = artifact.read_chunk("relations", "chunks/relations/all", "c1")
    assert_frame_equal(found, ROWS)
    assert artifact.shards("relations") == []


def test_settled_value_stays_what_it_was_first(artifact: Artifact) -> None:
    assert artifact.settled("rows_per_shard", 7) == 7
    assert artifact.settled("rows_per_shard", 100) == 7


@pytest.mark.parametrize("content", [b"", b"8", b'{"rows_per_shard": 8}'])
def test_settled_value_that_is_damaged_is_refused(artifact: Artifact, content: bytes) -> None:
    artifact.settled("rows_per_shard", 7)
    artifact.store.put(f"{artifact.folder}/rows_per_shard.json", content)
    with pytest.raises(DamagedFileError, match=naming("rows_per_shard.json")):
        artifact.settled("rows_per_shard", 7)


def test_set_aside_damaged_shard_opens_the_artifact(artifact: Artifact) -> None:
    artifact.begin()
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    assert not artifact.is_open()
    set_aside(artifact, f"{artifact.folder}/relations/all.parquet")
    assert artifact.is_open()
    assert artifact.shards("relations") == []
