"""A node that is about to go: how its engines hear of it, in time to publish what is finished.

Ray itself marks a node whose `ray start --block` is sent SIGTERM: it is being drained. Where a
process would be killed before that, a folder of the node is the sign: $FACTSWEEP_LEAVING names it
for all that runs there. Its file `asked` asks the engines to publish what is finished; each that
has something to publish keeps a file there that is named after its process, until it has.
`cluster/leave.sh` asks, and waits for them.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "FACTSWEEP_LEAVING"
_ASKED = "asked"
_LOCK = threading.Lock()
_AT_WORK: list[Path] = []  # the sign of this process, once for each block that it is at


def is_asked() -> bool:
    """Whether somebody on this node has asked its engines to publish what is finished."""
    folder = os.environ.get(VARIABLE)
    return folder is not None and Path(folder, _ASKED).exists()


@contextmanager
def at_work() -> Iterator[None]:
    """Let who asks wait for the end of the block, and of all others of this process."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        yield
        return
    sign = Path(folder, str(os.getpid()))
    with _LOCK:
        _AT_WORK.append(sign)
        sign.parent.mkdir(parents=True, exist_ok=True)
        sign.touch()
    try:
        yield
    finally:
        with _LOCK:
            _AT_WORK.remove(sign)
            if sign not in _AT_WORK:
                sign.unlink(missing_ok=True)


def draining() -> set[str]:
    """The nodes that Ray is about to take away, by their ids."""
    from ray._private.state import state

    try:
        return set(state.get_draining_nodes())
    except Exception:  # Ray's own are of no common kind
        return set()  # Ray is gone: who waits for its tasks says so
