"""Which prompt kills engines: the record of an open shard's attempts, kept next to its chunks.

An engine may die of the machine it is on, or of what it is asked. A shard that has seen
`max_deaths` attempts begun and none finished is answered in small groups, then one prompt at
a time; a prompt that has alone seen as many is condemned: it becomes an error row, and the
rest continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from factsweep.pipeline.storage.artifact import Artifact

_GROUP = 16

Ids = tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """`begun` attempts at the first group of the queue; an empty queue means all that is left."""

    begun: int = 0
    queue: tuple[Ids, ...] = ()
    condemned: Ids = ()

    def current(self, left: Sequence[str]) -> Ids:
        """What is to be answered now, of the prompts that are left."""
        return self.queue[0] if self.queue else tuple(left)

    def survived(self) -> "Trial":
        """The current group was answered."""
        return replace(self, begun=0, queue=self.queue[1:])

    def narrowed(self, left: Sequence[str], max_deaths: int) -> "Trial":
        """The trial with suspects few enough for what has happened to them.

        >>> trial = Trial(begun=3).narrowed(["a", "b"], max_deaths=3)
        >>> trial.queue
        (('a',), ('b',))
        >>> Trial(begun=3, queue=(("a",), ("b",))).narrowed(["a", "b"], max_deaths=3).condemned
        ('a',)
        """
        current = self.current(left)
        if self.begun < max_deaths:
            return self
        if len(current) == 1:
            return Trial(condemned=(*self.condemned, *current))
        size = _GROUP if len(current) > _GROUP else 1
        parts = [current[i : i + size] for i in range(0, len(current), size)]
        return Trial(queue=(*parts, *self.queue[1:]), condemned=self.condemned)


def read(artifact: Artifact, name: str) -> Trial:
    """The trial of an open shard; a new one if it was never begun.

    Raises:
        DamagedFileError: it is not what was written.
    """
    try:
        content = artifact.note(_name(name))
    except FileNotFoundError:
        return Trial()
    queue = tuple(map(tuple, content["queue"]))
    return Trial(content["begun"], queue, tuple(content["condemned"]))


def write(artifact: Artifact, name: str, trial: Trial) -> None:
    """Publish the trial, before the attempt that it speaks of."""
    content = {"begun": trial.begun, "queue": trial.queue, "condemned": trial.condemned}
    artifact.put_note(_name(name), content)


def drop(artifact: Artifact, name: str) -> None:
    """Forget the trial of a shard that is published."""
    artifact.drop(_name(name))


def forget(artifact: Artifact) -> None:
    """Forget the trials of an earlier run; that of a published shard stays until it is cleared."""
    for shard in begun(artifact, artifact.stage).difference(artifact.shards(artifact.stage)):
        drop(artifact, f"{artifact.stage}/{shard}")


def begun(artifact: Artifact, table: str) -> set[str]:
    """The shards of a table that have a trial: begun, and not yet published and cleared."""
    names = artifact.store.names(f"{artifact.folder}/trials/{table}")
    return {name.removesuffix(".json") for name in names}


def _name(shard: str) -> str:
    return f"trials/{shard}.json"
