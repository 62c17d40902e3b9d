"""What a study gives a run beside others: a Ray that runs already, and so many engines of it.

The record of the run names neither: it is what would be computed alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from factsweep.pipeline.config.run import Run


@dataclass(frozen=True)
class Share:
    """The address of a Ray, and how many engines a run may start there."""

    address: str
    engines: int


_GIVEN = ContextVar[Share | None]("share", default=None)


@contextmanager
def given(share: Share) -> Iterator[None]:
    """Have the runs of the block computed there."""
    before = _GIVEN.set(share)
    try:
        yield
    finally:
        _GIVEN.reset(before)


def placed(run: Run) -> Run:
    """The run as it is computed: where it was given a share, in that."""
    share = _GIVEN.get()
    if share is None:
        return run
    replicas = replace(run.model.replicas, max=share.engines)
    return replace(
        run,
        cluster=replace(run.cluster, address=share.address),
        model=replace(run.model, replicas=replicas),
    )
