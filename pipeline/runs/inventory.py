"""The inventory of a store: its artifacts, how large, what for, what is outdated, what can go.

A run may begin at any moment. So what goes is leased first, as a run leases what it writes; then
the notes of uses are read once more; then the manifests go, so that a run finds the artifacts
missing, and held; then the rest. Of each the file of its last lease stays, as the protocol of
leases asks. A run that looked before all this computes again what it finds gone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

from factsweep.operators.engines import ENGINES
from factsweep.operators.errors import ArtifactHeldError, DamagedFileError, InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.ability import ABILITIES
from factsweep.pipeline.runs.needs import UNFINISHED, Need, is_seen, needs, noted_uses
from factsweep.pipeline.stages import (
    admit,
    aggregate,
    answer,
    choose,
    expand,
    facts,
    given,
    match,
)
from factsweep.pipeline.stages.step import took
from factsweep.pipeline.storage import lease, manifest
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import Recipes, folders
from factsweep.pipeline.storage.object_store import File
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.shard import numbers
from factsweep.pipeline.storage.store import Store

_LEASES = "leases/"
_STAGES = {
    "facts": facts.VERSION,
    "knowledge-base": facts.BASE_VERSION,
    "prompts": expand.VERSION,
    "admitted": admit.VERSION,
    "chosen": choose.VERSION,
    **dict.fromkeys((table for each in ABILITIES for table in each.tables), answer.VERSION),
    "matched": match.VERSION,
    "metrics": aggregate.VERSION,
}
_GIVEN = "answers"  # the field of what was made of another system's answers


@dataclass(frozen=True)
class Item:
    """An artifact of a store, with what was set aside in it."""

    folder: str
    bytes: int
    written: datetime
    is_complete: bool
    needs: Sequence[Need]
    outdated: Sequence[str]  # what was of another version when it was made
    took: Counter[str]  # gpu_seconds, core_seconds

    @property
    def used(self) -> datetime:
        """When it was last written or used."""
        return max([self.written, *(need.when for need in self.needs if need.when)])


def inventory(store: Store, results: str) -> list[Item]:
    """All artifacts of a store, the largest first; `results` is a folder of runs that use it.

    Raises:
        DamagedFileError: a note of a use, a run.json or a list of baselines is damaged.
    """
    files = {folder: store.files(folder) for folder in folders(store)}
    # Of an artifact that was removed, the number of its last lease remains.
    there = {f: each for f, each in files.items() if not all(n.startswith(_LEASES) for n in each)}
    needed, recipes = needs(store, list(there), results), Recipes(store)
    items = (_item(store, f, each, needed.get(f, ()), recipes) for f, each in there.items())
    return sorted(items, key=lambda item: (-item.bytes, item.folder))


def _item(
    store: Store, folder: str, files: dict[str, File], needed: Sequence[Need], recipes: Recipes
) -> Item:
    recipe = recipes.get(folder.partition("/")[2])
    return Item(
        folder=folder,
        bytes=sum(each.bytes for each in files.values()),
        written=datetime.fromtimestamp(max(each.written for each in files.values()), UTC),
        is_complete=manifest.NAME in files,
        needs=needed,
        outdated=outdated(recipe, recipes) if recipe else [],
        took=_took(Artifact(store, recipe)) if recipe else Counter(),
    )


def _took(artifact: Artifact) -> Counter[str]:
    """The seconds of GPUs and cores that a complete artifact took, as far as they were noted."""
    found = Counter[str]()
    with suppress(FileNotFoundError, DamagedFileError):  # `verify` names what is damaged
        if artifact.is_complete():
            for counts in artifact.counts(artifact.stage).values():
                found.update(numbers(counts))
            if not found["core_seconds"]:
                found.update(numbers(took(artifact)))
    return Counter({name: found[name] for name in ("gpu_seconds", "core_seconds")})


def unneeded(items: Sequence[Item], *, unfinished: bool) -> list[Item]:
    """The artifacts that nothing needs; with `unfinished`, those that no known run has begun."""
    return [item for item in items if _can_go(item.needs, unfinished=unfinished)]


def _can_go(needed: Sequence[Need], *, unfinished: bool) -> bool:
    return all(unfinished and each.why == UNFINISHED for each in needed)


def removed(
    store: Store, chosen: Sequence[str], results: str, *, unfinished: bool
) -> Iterator[str]:
    """Remove artifacts, by their folders; yields those that went: what is needed by now stays.

    Raises:
        ArtifactHeldError: the store is being written.
    """
    _check_quiet(store)
    with lease.held(store, chosen, wait=False) as writer:
        needed = needs(store, list(folders(store)), results)
        gone = [each for each in chosen if _can_go(needed.get(each, ()), unfinished=unfinished)]
        for folder in gone:
            store.drop(f"{folder}/{manifest.NAME}")
        for folder in gone:
            writer.check()
            _empty(store, folder)
            yield folder


def _empty(store: Store, folder: str) -> None:
    *_, last = sorted(name for name in store.files(folder) if name.startswith(_LEASES))
    for name in store.files(folder):
        if name != last:
            store.drop(f"{folder}/{name}")
    store.drop_empty(folder)


def forget(store: Store, run: str) -> None:
    """Remove the notes that a run needs artifacts, if it is not done or its results are lost.

    Raises:
        InputError: the store knows no such run, or its results are there.
        ArtifactHeldError: the store is being written.
    """
    found = [use for use in noted_uses(store) if use.run == run]
    if not found:
        raise InputError(f"{store.where()} knows no run {run}; `factsweep artifacts` lists them.")
    for use in found:
        if use.done and is_seen(use) and Store(use.results).exists(f"{run}/run.json"):
            raise InputError(
                f"the run {run} has results; remove {Store(use.results).where(run)}, and its "
                "artifacts can go."
            )
    _check_quiet(store)
    for use in found:
        store.drop(use.name)


def _check_quiet(store: Store) -> None:
    if (writer := lease.writer(store, folders(store))) is not None:
        raise ArtifactHeldError(
            f"{store.where()} is being written by {writer}; prune it when that is done."
        )


def outdated(recipe: Recipe, recipes: Recipes) -> list[str]:
    """What was of another version when an artifact, or what it was made of, was made.

    Software that is not installed here is none of another version: the artifact is for elsewhere.
    """
    found = dict.fromkeys(_own(recipe))
    for each in recipe.inputs.values():
        if (source := recipes.get(each)) is not None:
            found |= dict.fromkeys(outdated(source, recipes))
    return list(found)


def _own(recipe: Recipe) -> Iterator[str]:
    fields = recipe.fields
    now = given.VERSION if _GIVEN in fields else _STAGES.get(recipe.stage, recipe.version)
    if recipe.version != now:
        yield f"stage {recipe.stage} {recipe.version} → {now}"
    method = METHODS.get(str(fields.get("method")))
    if method and fields.get("version", method.measure.version) != method.measure.version:
        yield f"method {fields['method']} {fields['version']} → {method.measure.version}"
    for name, version in {**fields.get("software", {}), **fields.get("versions", {})}.items():
        yield from _software(name, str(version))


def _software(name: str, version: str) -> Iterator[str]:
    if name == "engine":
        name, _, version = version.partition(" ")
    now = _installed(name)
    if now is not None and now != version:
        yield f"{name} {version} → {now}"


def _installed(name: str) -> str | None:
    """The version of an engine or a distribution that is here; null if it is not."""
    engines = (kind.version().partition(" ") for kind in ENGINES.values())
    found = {engine: version for engine, _, version in engines}
    try:
        return found[name] if name in found else metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
