"""Manifests: all shards of a complete artifact with their checksums, and its inputs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from factsweep.operators.methods.method import ABILITIES
from factsweep.pipeline.storage.store import StoredFile, digest, from_json, to_json

NAME = "manifest.json"
# Engines may answer differently when asked again; all other stages are deterministic.
ANSWERS = {table for ability in ABILITIES for table in ability.tables}


@dataclass(frozen=True)
class Entry:
    """A shard: its rows, its size in bytes, the SHA-256 of its file, and its counts."""

    rows: int
    bytes: int
    sha256: str
    counts: dict[str, int | float | str]


def _state_by_input(inputs: Any) -> Any:
    """Inputs as listed by this version: earlier ones listed a mapping per input.

    Of those, states that recipes determine are left out.
    """
    if not isinstance(inputs, Mapping):
        return inputs
    return {
        folder: state["made"] if isinstance(state, Mapping) and "made" in state else state
        for folder, state in inputs.items()
        if not isinstance(state, Mapping) or _follows_answers(str(folder))
    }


def _follows_answers(folder: str) -> bool:
    return folder.partition("/")[0] in {*ANSWERS, "matched"}


@dataclass(frozen=True)
class Manifest:
    """The content of a complete artifact; `inputs` are the states of its inputs, by folder.

    `made` is the state that earlier versions listed.
    """

    artifact: str
    inputs: Annotated[dict[str, str], BeforeValidator(_state_by_input)]
    tables: dict[str, dict[str, Entry]]
    counts: dict[str, int | float | str]
    made: str | None = None

    @cached_property
    def state(self) -> str:
        """A digest that changes when artifacts computed from this one are outdated.

        A recipe determines everything but answers and the cut into shards. So other bytes of the
        same rows, as another pyarrow writes them, have the same state.
        """
        is_answers = self.artifact.partition("/")[0] in ANSWERS
        shards = {
            table: {name: e.sha256 if is_answers else e.rows for name, e in entries.items()}
            for table, entries in self.tables.items()
        }
        answers = {
            folder: state for folder, state in self.inputs.items() if _follows_answers(folder)
        }
        return digest([shards, answers])

    def fits(self, state: str) -> bool:
        """Whether an artifact computed from this one in a state is still up to date."""
        return state in (self.state, self.made)

    def to_json(self) -> bytes:
        """The manifest as a file."""
        return to_json(asdict(self))


_MANIFEST = TypeAdapter(Manifest)


@lru_cache(maxsize=8)  # an engine reads the manifest of its prompts once per shard
def parse_manifest(text: bytes, artifact: str, path: str) -> Manifest:
    """Parse the manifest of an artifact; a DamagedFileError if it is none of this artifact."""
    file = StoredFile(path, f"{artifact}/{NAME}")
    from_json(text, file)
    try:
        manifest = _MANIFEST.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise file.damaged_file_error(f"is no manifest ({place}: {first['msg']})") from error
    if manifest.artifact != artifact:
        raise file.damaged_file_error(f"belongs elsewhere: it is of {manifest.artifact}")
    return manifest
