"""A store behind a URL, by obstore: S3, Google Cloud Storage or Azure.

A request that fails for a moment is sent again here, until its whole answer has arrived: obstore
resumes some bodies, no listing, and counts nothing.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from factsweep.operators.errors import InputError
from factsweep.operators.wording.redact import redactor
from factsweep.pipeline.storage import aws

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

    Opened = S3Store | GCSStore | AzureStore | MemoryStore

T = TypeVar("T")

ATTEMPTS = 7  # in half a minute where connections are refused, in four where no byte comes
_CLIENT: Any = {
    "allow_http": True,
    "connect_timeout": "5s",
    "read_timeout": "30s",  # between two bytes, and while a body is sent
    "timeout": "1h",
    "pool_max_idle_per_host": "64",  # more than a store uses at once (store.py)
}
_RETRIES: Any = {"max_retries": 0}
_OPTIONS = {
    "s3": ("endpoint_override", "region", "scheme"),
    "gs": ("endpoint_override", "scheme"),
    "az": ("endpoint_override", "scheme", "account"),
    "memory": (),
}
# Servers say these of requests that succeed a little later, some with a status of 4xx or in 200.
_BUSY = re.compile(
    "SlowDown|ServiceUnavailable|InternalError|OperationAborted|RequestTimeout|ServerBusy"
    "|ConditionalRequestConflict"
)
_STATUS = re.compile(r"status code: (\d{3})|Client error with status (\d{3})")
_NO_BUCKET = "NoSuchBucket"
_CUT = re.compile("HTTP error|response body|invalid list response")
_MOMENTARY = (408, 429, 500, 502, 503, 504)
# Where obstore looks for credentials when no other place has any.
_LAST_PLACE = re.compile("169.254.169.254|metadata.google.internal")


class Entry(NamedTuple):
    """What lies below a folder: its path in the store, its size, and when it was written."""

    path: str
    bytes: int | None  # null of a folder
    written: float  # in seconds since 1970; 0 where nobody knows


class File(NamedTuple):
    """A file of a store: its size, and when it was written, in seconds since 1970."""

    bytes: int
    written: float


class Refused:
    """How often servers refused for a moment, or did not answer, in all threads of a process."""

    def __init__(self) -> None:
        self.times = 0
        self._adding = Lock()

    def add(self) -> None:
        """Count one more."""
        with self._adding:
            self.times += 1


REFUSED = Refused()


class Remote:
    """The files below a URL: s3://[key:secret@]bucket/folder, gs://[anonymous@]… or az://….

    Without credentials in the URL, those of the environment are used, or of the machine. A request
    that fails raises an OSError; a ConnectionError if it failed for a moment, in all attempts.

    Raises:
        InputError: there is no such scheme, or the URL has an unknown option.
    """

    is_near = False

    def __init__(self, root: str) -> None:
        url = urlsplit(root, allow_fragments=False)
        if url.scheme not in _OPTIONS:
            hidden = redactor()(root.partition("?")[0])
            raise InputError(
                f"artifacts={hidden} is no folder, and no URL of s3://, gs:// or az://; give one."
            )
        self._scheme, self.drops_at_once = url.scheme, url.scheme == "s3"
        self._bucket = url.netloc.rpartition("@")[2]
        if ":" in self._bucket:  # what follows it would be shown as a part of the path
            raise InputError(
                f"{url.scheme}:// is followed by key:secret and no @; write a slash of the secret "
                "as %2F, or give both in the environment."
            )
        self._folder = unquote(url.path).strip("/")
        self._is_reached = False
        options = _query(url, _OPTIONS[url.scheme])
        if (host := options.get("endpoint_override")) is not None:
            scheme = options.get("scheme", "https")
            options["endpoint"] = host if "://" in host else f"{scheme}://{host}"
        options |= {"user": unquote(url.username or ""), "password": unquote(url.password or "")}
        self._options = json.dumps(options)

    def _open(self, *, in_bulk: bool) -> "Opened":
        if self._scheme == "memory":
            return _memory(self._bucket)
        return _opened(self._scheme, self._bucket, self._options, in_bulk, _environment())

    def put(self, name: str, content: bytes) -> None:
        """Put a file: one request."""
        self._ask(lambda store: store.put(self._at(name), content, use_multipart=False))

    def create(self, name: str, content: bytes) -> bool:
        """Put a file unless there is one of that name; whether it was put."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._ask(lambda store: store.put(self._at(name), content, mode="create"))
        except AlreadyExistsError:
            return False
        return True

    def get(self, name: str, last_bytes: int | None = None) -> bytes:
        """The content of a file, or its end: one request.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        if last_bytes is not None:
            return self._get_end(name, last_bytes)
        return self._ask(lambda store: bytes(store.get(self._at(name)).bytes()))

    def _get_end(self, name: str, n_bytes: int) -> bytes:
        """The end of a file; of Azure, which knows no such request, a second request says where."""
        part: Any = {"suffix": n_bytes}
        if self._scheme == "az":
            size = self._ask(lambda store: store.head(self._at(name)))["size"]
            part = (max(0, size - n_bytes), size)
        options: Any = {"range": part}
        try:
            return self._ask(
                lambda store: bytes(store.get(self._at(name), options=options).bytes())
            )
        except (FileNotFoundError, ConnectionError):
            raise
        except OSError:
            if self.get(name) != b"":
                raise
            return b""  # a file without a single byte has no last one

    def exists(self, name: str) -> bool:
        """Whether there is a file: one request."""
        try:
            self._ask(lambda store: store.head(self._at(name)))
        except FileNotFoundError:
            return False
        return True

    def entries(self, folder: str, *, recursive: bool = False) -> list[Entry]:
        """What lies right under a folder, or below it, sorted; nothing if it is not there."""
        prefix = f"{below}/" if (below := self._at(folder)) else None
        files: Sequence[Mapping[str, Any]]
        try:
            if recursive:
                files = self._ask(lambda store: [meta for p in store.list(prefix) for meta in p])
                folders = {path for meta in files for path in _parents(meta["path"])}
            else:
                page = self._ask(lambda store: store.list_with_delimiter(prefix))
                files, folders = page["objects"], set(page["common_prefixes"])
        except OSError as error:
            if isinstance(error, FileNotFoundError) or _NO_BUCKET in str(error):
                return []
            raise
        # Consoles put an empty object in place of a folder.
        objects = [meta for meta in files if meta["path"] not in {below, *folders}]
        inner_folders = (
            [] if recursive else [Entry(self._below(path), None, 0.0) for path in folders]
        )
        return sorted([*inner_folders, *map(self._entry, objects)])

    def names(self, folder: str) -> list[str]:
        """The files right under a folder."""
        return [_last(entry) for entry in self.entries(folder) if entry.bytes is not None]

    def folders(self, folder: str) -> list[str]:
        """The folders right under a folder."""
        return [_last(entry) for entry in self.entries(folder) if entry.bytes is None]

    def files(self, folder: str) -> dict[str, File]:
        """Each file below a folder, by its path in it."""
        start = f"{folder}/" if folder else ""
        return {
            entry.path.removeprefix(start): File(entry.bytes, entry.written)
            for entry in self.entries(folder, recursive=True)
            if entry.bytes is not None
        }

    def drop(self, *names: str) -> None:
        """Remove files, those that are there; of S3 a thousand with one request."""
        paths = [self._at(name) for name in names]
        if self.drops_at_once and len(paths) > 1:
            self._ask(lambda store: store.delete(paths), in_bulk=True)
            return
        for path in paths:
            with suppress(FileNotFoundError):
                self._ask(partial(_delete, path=path))

    def drop_empty(self, folder: str) -> None:
        """Nothing: there are no folders without files."""

    def moved(self, name: str, aside: str) -> bool:
        """Whether a file or folder could be moved: false if there is one of the new name."""
        if self.exists(aside) or self.files(aside):
            return False
        inner = [""] if self.exists(name) else [f"/{path}" for path in self.files(name)]
        for path in inner:
            old, new = self._at(f"{name}{path}"), self._at(f"{aside}{path}")
            self._ask(partial(_copy, old=old, new=new))
            self.drop(f"{name}{path}")
        return True

    def free(self) -> int | None:
        """Nobody knows how much room there is."""
        return None

    def _ask(self, request: Callable[["Opened"], T], *, in_bulk: bool = False) -> T:
        """The answer to a request, which is sent again while it fails for a moment.

        Raises:
            FileNotFoundError: there is no such file, or no such bucket to list.
            ConnectionError: it failed for a moment in all attempts.
            OSError: it failed otherwise.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError

        for pause_s in (*pauses_s(), None):
            try:
                answer = request(self._open(in_bulk=in_bulk))
            except (BaseError, FileNotFoundError, ValueError) as error:
                message = _message(error)
                if isinstance(error, FileNotFoundError) and _NO_BUCKET not in message:
                    raise
                if isinstance(error, AlreadyExistsError) and not _BUSY.search(message):
                    raise
                if not self._is_momentary(error, message):
                    raise OSError(message) from error
                if pause_s is None:
                    raise ConnectionError(message) from error
                REFUSED.add()
                time.sleep(pause_s)
            else:
                self._is_reached = True
                return answer
        raise AssertionError("the last attempt has no pause")

    def _is_momentary(self, error: Exception, message: str) -> bool:
        """Whether a request that failed may succeed a little later."""
        from obstore.exceptions import GenericError

        if _BUSY.search(message):
            return True
        if not self._is_reached and _LAST_PLACE.search(message):
            return False  # no credentials
        if (status := _STATUS.search(message)) is not None:
            return int(status[1] or status[2]) in _MOMENTARY
        return isinstance(error, GenericError) and _CUT.search(message) is not None

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}".strip("/")

    def _below(self, path: str) -> str:
        """The path in the store of an object."""
        return path.removeprefix(f"{self._folder}/" if self._folder else "")

    def _entry(self, meta: Mapping[str, Any]) -> Entry:
        return Entry(self._below(meta["path"]), meta["size"], meta["last_modified"].timestamp())


def pauses_s() -> Iterator[float]:
    """How long to wait before each further attempt, in seconds: at random, up to 1, 2, 4, … 32."""
    for attempt in range(ATTEMPTS - 1):
        yield int.from_bytes(os.urandom(2)) / 2**16 * 2**attempt


def _query(url: SplitResult, names: Sequence[str]) -> dict[str, str]:
    """The options that follow a URL.

    Raises:
        InputError: one is none of those that are known.
    """
    options = {name: values[-1] for name, values in parse_qs(url.query).items()}
    if unknown := sorted(options.keys() - set(names)):
        place = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}".rstrip("/")
        raise InputError(
            f"{place} has the option {unknown[0]}, which is none of {', '.join(names)}; "
            "leave it out."
        )
    return options


def _environment() -> tuple[Any, ...]:
    """What says who asks: keys that change there are those of the next request."""
    signs = ("AWS_", "AZURE_", "GOOGLE_")
    variables = sorted((n, value) for n, value in os.environ.items() if n.startswith(signs))
    return (*variables, *aws.states(), os.getpid())  # a forked process has no open connections


@lru_cache(8)  # connections are kept: to open one takes longer than to ask
def _opened(
    scheme: str, bucket: str, options: str, in_bulk: bool, _environment: tuple[Any, ...]
) -> "Opened":
    from obstore import store

    fields = json.loads(options)
    user, endpoint = fields["user"], fields.get("endpoint")
    shared: Any = {"client_options": {**_CLIENT, **aws.trusted()}, "retry_config": _RETRIES}
    if scheme == "s3":
        keys = {"access_key_id": user, "secret_access_key": fields["password"]} if user else {}
        signed = aws.signed(keys, fields.get("region"), endpoint)
        signed["config"]["disable_bulk_delete"] = not in_bulk  # one file needs no right to many
        return store.S3Store(bucket, **shared, **signed)
    if scheme == "gs":
        config: Any = {"base_url": endpoint} if endpoint else {}
        if user == "anonymous":
            config |= {"skip_signature": True, "bearer_token": "none"}
        return store.GCSStore(bucket, config=config, **shared)
    of_azure: Any = {"account_name": fields.get("account"), "endpoint": endpoint}
    config = {name: value for name, value in of_azure.items() if value}
    return store.AzureStore(bucket, config=config, **shared)


@cache
def _memory(_name: str) -> "Opened":
    """What one process keeps for itself."""
    from obstore.store import MemoryStore

    return MemoryStore()


def _delete(store: "Opened", path: str) -> None:
    store.delete(path)


def _copy(store: "Opened", old: str, new: str) -> None:
    store.copy(old, new)


def _message(error: Exception) -> str:
    """What obstore says in one line, without how its code sees it; a body as its code and text."""
    message, _, _ = str(error).partition("\n\nDebug source")
    code, text = (re.search(f"<{tag}>(.*?)</{tag}>", message) for tag in ("Code", "Message"))
    if code is not None:
        message = f"{message.partition('<')[0]}{code[1]}{f', {text[1]}' if text else ''}"
    return " ".join(message.split()).rstrip(".")


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def _last(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]
