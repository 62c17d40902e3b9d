"""Whether an artifact is made of what it is named after, and of what is there now."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from factsweep.operators.errors import InputError
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import set_all_aside, set_aside
from factsweep.pipeline.storage.recipe import differences
from factsweep.pipeline.storage.sealed import digest

_MADE_OF = "made_of"  # what an open artifact keeps of its inputs


def check_planned(here: Mapping[str, Any], artifact: Artifact) -> None:
    """Refuse to make an artifact of what it is not named after: another machine may have others.

    Raises:
        InputError: it names what differs; `here` are fields of its recipe as they are here.
    """
    planned = {name: artifact.recipe.fields.get(name) for name in here}
    for line in differences(planned, here):
        raise InputError(
            f"{socket.gethostname()} differs from the machine that planned "
            f"{artifact.store.where(artifact.folder)} ({line}); install the same versions on every "
            "machine, then run again."
        )


def check_inputs(artifact: Artifact, inputs: Sequence[Artifact]) -> None:
    """Set aside the shards of an open artifact that were made of other inputs than are there."""
    made_of = digest([each.manifest().pin.digest for each in inputs])
    if artifact.settled(_MADE_OF, made_of) != made_of:
        set_all_aside(artifact)
        set_aside(artifact, f"{artifact.folder}/{_MADE_OF}.json")
        artifact.settled(_MADE_OF, made_of)
