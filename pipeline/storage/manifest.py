"""Manifests: all shards of a complete artifact with their checksums, and what they were made of.

A manifest is sealed, names its artifact, and pins the manifests of all artifacts that were read:
so that a shard that was edited together with its manifest does not fit what was made of it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.methods.ability import ABILITIES
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.storage.sealed import REPAIR, digest, seal, unseal

NAME = "manifest.json"
# What an engine answers: computed again, it may be other answers. All else comes out the same.
ANSWERS = {table for ability in ABILITIES for table in ability.tables}


@dataclass(frozen=True)
class Entry:
    """A shard: its rows, its size in bytes, the SHA-256 of the file and of its data alone.

    `values` is that of its values, however they are stored; empty: an older version wrote it.
    """

    rows: int
    bytes: int
    sha256: str
    content: str
    counts: dict[str, int | float | str]
    values: str = ""


@dataclass(frozen=True)
class Pin:
    """A manifest that something was made of.

    `contents` are the digests of each shard's data, by table/shard, of answers alone.
    """

    digest: str  # of the data that it lists
    made: str  # another one each time that it is computed, though its content be the same
    contents: Mapping[str, str] = field(default_factory=dict)
    values: str = ""  # the digest of its values; empty: an older version wrote it, at least in part


@dataclass(frozen=True)
class Manifest:
    """What a complete artifact holds; `inputs` are the artifacts that it was made of, by folder."""

    artifact: str
    made: str
    inputs: dict[str, Pin]
    tables: dict[str, dict[str, Entry]]
    counts: dict[str, int | float | str]

    @cached_property
    def pin(self) -> Pin:
        """What stands in the manifests of all that is made of this artifact.

        It is of the data alone: what they cost may differ when they are computed anew.
        """
        data = self._digests("content")
        is_answers = self.artifact.partition("/")[0] in ANSWERS
        each = {f"{table}/{shard}": data[table][shard] for table in data for shard in data[table]}
        values = self._digests("values")
        is_told = all(all(shards.values()) for shards in values.values())
        return Pin(
            digest({"artifact": self.artifact, "tables": data}),
            self.made,
            each if is_answers else {},
            digest({"artifact": self.artifact, "tables": values}) if is_told else "",
        )

    def _digests(self, of: Literal["content", "values"]) -> dict[str, dict[str, str]]:
        return {
            table: {shard: getattr(entry, of) for shard, entry in shards.items()}
            for table, shards in self.tables.items()
        }

    def to_json(self) -> bytes:
        """The manifest as a sealed file."""
        return seal(asdict(self), f"{self.artifact}/{NAME}")


@lru_cache(maxsize=8)  # an engine asks for that of its prompts once for every shard
def parsed(text: bytes, artifact: str, where: str) -> Manifest:
    """The manifest of an artifact, from its file.

    Raises:
        DamagedFileError: it is not what was written for this artifact.
    """
    name = f"{artifact}/{NAME}"
    content = unseal(text, name, where)
    try:
        return build(Manifest, content, where)
    except InputError as error:
        raise DamagedFileError(f"{str(error).removesuffix('.')}{REPAIR}", name) from error
