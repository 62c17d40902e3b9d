"""Artifacts: shards that are whole or refused, a manifest that comes last, and how one is found."""

import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.integrity import (
    check_content,
    find_outdated,
    quarantine,
    quarantine_all,
)
from factsweep.pipeline.storage.lookup import find_artifact, open_artifact
from factsweep.pipeline.storage.shard import ShardPlace, encode
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.damage import age, change_entry

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


DAMAGES: dict[str, Damage | None] = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "gone": None,
    "another artifact's": lambda _: encode(ROWS, ShardPlace("relations", "f1", "relations/all")),
    "another number": lambda _: encode(
        ROWS[::-1], ShardPlace("relations", RECIPE.fingerprint, "relations/all")
    ),
}


@pytest.mark.parametrize("is_complete", [False, True])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_read_damaged_shard_names_file_and_fix(
    artifact: Artifact, damage: Damage | None, *, is_complete: bool
) -> None:
    artifact.write("relations", "all", ROWS)
    path = shard_path(artifact)
    if is_complete:
        artifact.finish(["relations"])
    if not is_complete and damage is DAMAGES["another number"]:
        return  # a shard of an open artifact that our own code has written is published
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(content))
    with pytest.raises(DamagedFileError) as error:
        artifact.read("relations", "all")
    assert str(error.value).startswith((f"{path} ", f"the footer of {path} "))
    assert "factsweep verify --all --repair" in str(error.value)


@pytest.mark.parametrize("wrong", ["rows", "bytes"])
def test_manifest_that_says_one_thing_wrong_of_a_shard_is_written_anew(
    artifact: Artifact, wrong: str
) -> None:
    artifact.begin()
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    entry = asdict(artifact.manifest().tables["relations"]["all"])
    change_entry(shard_path(artifact), {wrong: entry[wrong] + 1})
    reopened = Artifact(artifact.store, RECIPE)
    (finding,) = check_content(reopened)
    assert re.search(naming("manifest.json", "all.parquet"), finding.sentence)
    finding.quarantine()
    assert reopened.list_published("relations") == ["all"]
    reopened.finish(["relations"])
    assert asdict(reopened.manifest().tables["relations"]["all"]) == entry


def test_shards_complete_artifact_are_those_of_the_manifest(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    shutil.copy(shard_path(artifact), shard_path(artifact).with_name("more.parquet"))
    assert artifact.shards("relations") == ["all"]


@pytest.mark.parametrize(
    ("shards", "content", "words"),
    [
        (None, None, "more.parquet"),  # was not written here
        (["all", "more", "other"], None, "other.parquet"),  # is missing
        (["all", "more"], b"half a shard", "whole Parquet"),
    ],
)
def test_finish_shard_unexpected_missing_or_damaged_is_refused(
    artifact: Artifact, shards: list[str] | None, content: bytes | None, words: str
) -> None:
    artifact.write("relations", "all", ROWS)
    Artifact(artifact.store, RECIPE).write("relations", "more", ROWS)
    if content is not None:
        shard_path(artifact).with_name("more.parquet").write_bytes(content)
    with pytest.raises(DamagedFileError, match=naming(words)):
        artifact.finish(
            ["relations"], expected_shards=None if shards is None else {"relations": shards}
        )


def test_finish_shard_exchanged_since_it_was_written_is_refused_when_read(
    artifact: Artifact,
) -> None:
    artifact.write("relations", "all", ROWS)
    other = encode(ROWS[::-1], ShardPlace("relations", RECIPE.fingerprint, "relations/all"))
    shard_path(artifact).write_bytes(other)
    artifact.finish(["relations"])
    with pytest.raises(DamagedFileError, match=naming("all.parquet")):
        artifact.read("relations", "all")


def test_finish_lists_what_was_written_as_what_is_read(artifact: Artifact) -> None:
    artifact.write("relations", "all", ROWS, {"seconds": 1.5, "model": "gpt2"})
    artifact.finish(["relations"])
    written = artifact.manifest().tables
    Path(artifact.store.root, artifact.folder, "manifest.json").unlink()
    reopened = Artifact(artifact.store, RECIPE)
    reopened.write("relations", "all", ROWS[::-1])  # it exists, so this is not published
    reopened.finish(["relations"])
    assert reopened.manifest().tables == written


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize(
    ("stage", "rows", "outdated"),
    [
        ("prompts", [ROWS], ""),
        ("prompts", [ROWS[::-1]], ""),  # no recipe gives these: other bytes of the same
        ("prompts", [ROWS[:1], ROWS[1:]], "generations"),
        ("generations", [ROWS], ""),
        ("generations", [ROWS[::-1]], "matched"),
    ],
)
def test_stale_is_what_was_made_of_other_answers_or_shards(
    tmp_path: Path, stage: str, rows: list[pl.DataFrame], outdated: str, *, is_older: bool
) -> None:
    store, stages = Store(str(tmp_path)), ("prompts", "generations", "matched", "metrics")
    artifacts = {stage: Artifact(store, Recipe(stage, 1, {})) for stage in stages}
    inputs: list[Artifact] = []
    for artifact in artifacts.values():
        artifact.write("relations", "0", ROWS)
        artifact.finish(["relations"], made_of=inputs)
        if is_older:
            age(Path(store.where(f"{artifact.folder}/manifest.json")))
        inputs = [artifact]
    recomputed = replace(artifacts[stage])
    quarantine_all(recomputed)
    for n, part in enumerate(rows):
        recomputed.write("relations", f"{n}", part)
    recomputed.finish(
        ["relations"], made_of=[artifacts["prompts"]] if stage == "generations" else []
    )
    copies = [replace(artifact) for artifact in artifacts.values()]
    assert all(artifact.is_complete() for artifact in copies)
    outdated_stages = [artifact.artifact.stage for artifact in find_outdated(copies)]
    # Answers of earlier versions stay; artifacts computed from them are recomputed once.
    is_anew = is_older and stage == "generations"
    assert outdated_stages == (
        ["matched"] if is_anew else [outdated] * bool(outdated and not is_older)
    )


def test_read_other_rows_computed_meanwhile_is_refused(artifact: Artifact) -> None:
    other = Artifact(artifact.store, RECIPE)
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    other.read("relations", "all")
    quarantine(artifact, f"{artifact.folder}/relations/all.parquet")
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
    edited_rows = ROWS.with_columns(relation_id=pl.lit("P37"))
    place = ShardPlace("relations", artifact.fingerprint, "relations/all")
    edited, original = (encode(rows, place) for rows in (edited_rows, ROWS))
    footer = int.from_bytes(original[-8:-4], "little") + 8
    shard_path(artifact).write_bytes(edited[: len(edited) - footer] + original[-footer:])
    with pytest.raises(DamagedFileError):
        artifact.read("relations", "all", ["label"])


def test_read_all_no_shards_has_the_columns(artifact: Artifact) -> None:
    assert_frame_equal(artifact.read_all("relations"), ROWS.clear())


def test_write_chunk_is_read_back_and_is_no_shard(artifact: Artifact) -> None:
    artifact.write_chunk("relations", "chunks/relations/all", "c1", ROWS)
    rows, _ = artifact.read_chunk("relations", "chunks/relations/all", "c1")
    assert_frame_equal(rows, ROWS)
    assert artifact.shards("relations") == []


def test_settled_value_stays_what_it_was_first(artifact: Artifact) -> None:
    assert artifact.settle("rows_per_shard", 7) == 7
    assert artifact.settle("rows_per_shard", 100) == 7


@pytest.mark.parametrize("content", [b"", b"8", b'{"rows_per_shard": "8"}', b"{}"])
def test_settled_value_that_is_damaged_is_refused(artifact: Artifact, content: bytes) -> None:
    artifact.settle("rows_per_shard", 7)
    artifact.store.put(f"{artifact.folder}/rows_per_shard.json", content)
    with pytest.raises(DamagedFileError, match=naming("rows_per_shard.json")):
        artifact.settle("rows_per_shard", 7)


def test_set_aside_damaged_shard_opens_the_artifact(artifact: Artifact) -> None:
    artifact.begin()
    artifact.write("relations", "all", ROWS)
    artifact.finish(["relations"])
    assert not artifact.is_open()
    quarantine(artifact, f"{artifact.folder}/relations/all.parquet")
    assert artifact.is_open()
    assert artifact.shards("relations") == []


def test_opened_recipe_of_another_artifact_is_refused(artifact: Artifact) -> None:
    other = Artifact(artifact.store, replace(RECIPE, version=2))
    artifact.begin()
    content = artifact.store.get(f"{artifact.folder}/recipe.json")
    artifact.store.put(f"{other.folder}/recipe.json", content)
    with pytest.raises(DamagedFileError, match=naming(f"{other.folder}/recipe.json")):
        open_artifact(artifact.store, other.folder)


def test_find_start_of_a_fingerprint_or_folder_gives_folder_and_recipe(artifact: Artifact) -> None:
    with pytest.raises(InputError, match=naming(artifact.folder, "run again")):
        open_artifact(artifact.store, artifact.folder)
    artifact.begin()
    for prefix in (RECIPE.fingerprint[:6], f"{artifact.folder}/"):
        assert find_artifact(artifact.store, prefix) == (artifact.folder, RECIPE)


@pytest.mark.parametrize(("prefix", "n"), [("", 2), ("zz", 0)])
def test_find_not_exactly_one_says_how_many(artifact: Artifact, prefix: str, n: int) -> None:
    artifact.begin()
    Artifact(artifact.store, replace(RECIPE, version=2)).begin()
    with pytest.raises(InputError, match=naming(n, f"'{prefix}'")):
        find_artifact(artifact.store, prefix)
