"""boto3's clients of S3: all stores of a process that ask one server as one account share one.

To make a client takes longer than to ask it something. It may be used by many threads at once.
"""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

# Between attempts boto3 waits at random, for up to 1, 2, 4, … 32 seconds: half a minute or so where
# connections are refused, and two minutes or so where they are accepted and no byte comes.
BOTO_ATTEMPTS = 7
# The other modes give a client a quota: after 35 retries, of all threads, it sends nothing again.
_RETRIES = "legacy"
_MOMENTARY = (429, 500, 502, 503, 504)
CONNECT_S = 5.0
ANSWER_S = 10.0
_CONNECTIONS = 64  # kept open: more than a store uses at once (store.py)
_KEPT = 8  # clients: a process has one or two
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}


@dataclass(frozen=True)
class Caller:
    """Who asks which server: all that a client is made of; null: see the environment."""

    endpoint: str | None
    region: str | None
    key: str | None = field(repr=False)
    secret: str | None = field(repr=False)
    environment: frozenset[tuple[str, str]] = field(repr=False)
    files: tuple[tuple[str, int], ...]


def caller(endpoint: str | None, region: str | None, key: str | None, secret: str | None) -> Caller:
    """The caller that this process is now, by its environment and the files that hold keys.

    A client renews by itself the credentials that run out; of keys that are changed in a file or in
    the environment a caller made later knows.
    """
    environment = frozenset((n, value) for n, value in os.environ.items() if n.startswith("AWS_"))
    files = (os.environ.get(name, usual) for name, usual in _FILES.items())
    return Caller(endpoint, region, key, secret, environment, tuple(map(_state, files)))


def _state(name: str) -> tuple[str, int]:
    """A file, and when it was written; 0 if it cannot be read."""
    try:
        path = Path(name).expanduser()
        return str(path), path.stat().st_mtime_ns
    except (OSError, RuntimeError):  # not for this user, who may have no home
        return name, 0


def pauses_s() -> Iterator[float]:
    """How long to wait before each further attempt, in seconds: at random, up to 1, 2, 4, … 32."""
    for attempt in range(BOTO_ATTEMPTS - 1):
        yield secrets.randbelow(1000) / 1000 * 2**attempt


class Refused:
    """How often servers refused for a moment, or did not answer, in all threads of a process."""

    def __init__(self) -> None:
        self.times = 0
        self._adding = Lock()

    def note(self, response: Any = None, caught_exception: Any = None, **_: Any) -> None:
        """Hear of an answer, HTTP's and parsed, as boto3 does before it asks again."""
        status = 0 if response is None else response[0].status_code
        if caught_exception is not None or status in _MOMENTARY:
            self.add()

    def add(self) -> None:
        """Count one more."""
        with self._adding:
            self.times += 1


REFUSED = Refused()


def _make(caller: Caller) -> Any:
    from boto3.session import Session
    from botocore.config import Config

    made = Session().client(
        "s3",
        region_name=caller.region,
        endpoint_url=caller.endpoint,
        aws_access_key_id=caller.key,
        aws_secret_access_key=caller.secret,
        config=Config(
            connect_timeout=CONNECT_S,
            read_timeout=ANSWER_S,
            max_pool_connections=_CONNECTIONS,
            retries={"mode": _RETRIES, "total_max_attempts": BOTO_ATTEMPTS},
        ),
    )
    made.meta.events.register("needs-retry.s3", REFUSED.note)
    return made


class _Clients:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked process must: it would share connections with its parent."""
        self._making = Lock()  # which another thread of the parent may have held
        self._made = lru_cache(_KEPT)(_make)

    def of(self, caller: Caller) -> Any:
        with self._making:
            return self._made(caller)


_CLIENTS = _Clients()
os.register_at_fork(after_in_child=_CLIENTS.forget)


def client(caller: Caller) -> Any:
    """The client of a caller; always the same one, in a process."""
    return _CLIENTS.of(caller)
