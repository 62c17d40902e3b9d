"""Manifests: all shards of a complete artifact with their checksums, and what it was made of."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from factsweep.operators.methods.ability import ABILITIES
from factsweep.pipeline.storage.json_files import Stored, digest, from_json, to_json

NAME = "manifest.json"
# What an engine answers: computed again, it may be other answers. All else comes out the same.
ANSWERS = {table for ability in ABILITIES for table in ability.tables}


@dataclass(frozen=True)
class Entry:
    """A shard: its rows, its size in bytes, the SHA-256 of its file, and its counts."""

    rows: int
    bytes: int
    sha256: str
    counts: dict[str, int | float | str]


def _states(inputs: Any) -> Any:
    """The inputs as they are listed now: earlier versions listed more of each.

    What of theirs was determined by recipes is left out: there, nothing was ever made anew.
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
    """What a complete artifact holds; `inputs` are the states of what it was made of, by folder.

    `made` is what earlier versions listed as a state.
    """

    artifact: str
    inputs: Annotated[dict[str, str], BeforeValidator(_states)]
    tables: dict[str, dict[str, Entry]]
    counts: dict[str, int | float | str]
    made: str | None = None

    @cached_property
    def state(self) -> str:
        """A digest that differs where what was made of the artifact no longer holds.

        A recipe determines all but answers, and into which shards the rows are cut: so other bytes
        of the same rows, as another pyarrow writes them, are the same state.
        """
        is_answers = self.artifact.partition("/")[0] in ANSWERS
        cut = {
            table: {s: entry.sha256 if is_answers else entry.rows for s, entry in shards.items()}
            for table, shards in self.tables.items()
        }
        answers = {
            folder: state for folder, state in self.inputs.items() if _follows_answers(folder)
        }
        return digest([cut, answers])

    def fits(self, state: str) -> bool:
        """Whether what was made of the artifact in a state still holds."""
        return state in (self.state, self.made)

    def to_json(self) -> bytes:
        """The manifest as a file."""
        return to_json(asdict(self))


_MANIFEST = TypeAdapter(Manifest)


@lru_cache(maxsize=8)  # an engine asks for that of its prompts once for every shard
def parsed(text: bytes, artifact: str, where: str) -> Manifest:
    """The manifest of an artifact, from its file.

    Raises:
        DamagedFileError: it is not what was written for this artifact.
    """
    file = Stored(where, f"{artifact}/{NAME}")
    from_json(text, file)
    try:
        found = _MANIFEST.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise file.damaged(f"is no manifest ({at}: {first['msg']})") from error
    if found.artifact != artifact:
        raise file.damaged(f"belongs elsewhere: it is of {found.artifact}")
    return found
