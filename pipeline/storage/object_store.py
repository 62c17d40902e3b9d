"""A store behind a URL, by obstore: S3, Google Cloud Storage or Azure.

Requests are retried here, until their whole answer has arrived: obstore resumes some bodies, but no
listings, and does not count retries.

Keys of S3 are found as by the AWS command line: in variables, then in files. obstore reads the
variables, asks the machine if there are none, and reads no files.
"""

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from operator import methodcaller
from pathlib import PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote

from factsweep.operators.errors import InputError
from factsweep.operators.wording.redaction import redactor
from factsweep.pipeline.machine.urls import split_url, split_web_address

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

    Opened = S3Store | GCSStore | AzureStore | MemoryStore
from configparser import Error, RawConfigParser
from pathlib import Path

from factsweep.operators.errors import input_errors

_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
_KEYS = {  # obstore's names by those of a profile
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_BY_BOTO = ("role_arn", "sso_session", "sso_start_url", "credential_process")
T = TypeVar("T")

ATTEMPTS = 7  # in 30 seconds if connections are refused, in 4 minutes if no byte arrives
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
# Codes of transient errors; servers send some with a status of 4xx or 200.
_BUSY = re.compile(
    "SlowDown|ServiceUnavailable|InternalError|OperationAborted|RequestTimeout|ServerBusy"
    "|ConditionalRequestConflict"
)
_STATUS = re.compile(r"status code: (\d{3})|Client error with status (\d{3})")
_NO_BUCKET = "NoSuchBucket"
_CUT = re.compile("HTTP error|response body|invalid list response")
_MOMENTARY = (408, 429, 500, 502, 503, 504)
# The last places where obstore looks for credentials.
_LAST_PLACE = re.compile("169.254.169.254|metadata.google.internal")


class File(NamedTuple):
    """A file of a store: its size, and the time of its last change, in seconds since 1970."""

    bytes: int
    written: float


class TransientErrors:
    """Counts transient errors of servers, in all threads of a process."""

    def __init__(self) -> None:
        self.times = 0
        self.report: Callable[[], object] | None = None  # called after each error
        self._adding = Lock()

    def add(self) -> None:
        """Count an error."""
        with self._adding:
            self.times += 1
        if self.report is not None:
            self.report()


REFUSED = TransientErrors()


class ObjectStore:
    """The files below a URL: s3://[key:secret@]bucket/folder, gs://[anonymous@]… or az://….

    Without credentials in the URL, those of the environment or of the machine are used. Requests
    that fail raise an OSError, or a ConnectionError after transient errors in all attempts.
    """

    is_near = False

    def __init__(self, root: str) -> None:
        url = split_url(root, root.partition("?")[0])
        if url.scheme not in _OPTIONS:
            hidden = redactor()(root.partition("?")[0])
            raise InputError(
                f"artifacts={hidden} is no folder, and no URL of s3://, gs:// or az://; give one."
            )
        self._scheme, self.drops_at_once = url.scheme, url.scheme == "s3"
        self._bucket = url.netloc.rpartition("@")[2]
        if ":" in self._bucket:  # the rest would be shown as a part of the path
            raise InputError(
                f"{url.scheme}:// is followed by key:secret and no @; write a slash of the secret "
                "as %2F, or give both in the environment."
            )
        if not self._bucket and url.scheme != "memory":
            raise InputError(
                f"{url.scheme}:// names no bucket; write {url.scheme}://BUCKET/FOLDER."
            )
        self._folder = unquote(url.path).strip("/")
        self._is_reached = False
        options = _parse_query(url, _OPTIONS[url.scheme])
        if (host := options.get("endpoint_override")) is not None:
            scheme = options.get("scheme", "https")
            options["endpoint"] = host if "://" in host else f"{scheme}://{host}"
            split_web_address(
                options["endpoint"], f"endpoint_override of {url.scheme}://{self._bucket}"
            )
        options |= {"user": unquote(url.username or ""), "password": unquote(url.password or "")}
        self._options = json.dumps(options)

    def put(self, name: str, content: bytes) -> None:
        """Put a file."""
        self._send(lambda store: store.put(self._path_of(name), content, use_multipart=False))

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A temporary file of this machine that is put, in parts, at the end of the block."""
        with tempfile.TemporaryFile() as file:
            yield file

            def upload(store: Any) -> None:
                file.seek(0)
                store.put(self._path_of(name), file)

            self._send(upload)

    def create(self, name: str, content: bytes) -> bool:
        """Put a file unless there is one of that name; whether it was put."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._send(lambda store: store.put(self._path_of(name), content, mode="create"))
        except AlreadyExistsError:
            return False
        return True

    def get(self, name: str, last_bytes: int | None = None) -> bytes:
        """The content of a file, or its end; a FileNotFoundError if there is none."""
        if last_bytes is None:
            return self._send(lambda store: bytes(store.get(self._path_of(name)).bytes()))
        span: Any = {"suffix": last_bytes}
        if self._scheme == "az":  # which has no such request
            size = self._send(lambda store: store.head(self._path_of(name)))["size"]
            span = (max(0, size - last_bytes), size)
        options: Any = {"range": span}
        try:
            return self._send(
                lambda store: bytes(store.get(self._path_of(name), options=options).bytes())
            )
        except (FileNotFoundError, ConnectionError):
            raise
        except OSError:
            if self.get(name) != b"":
                raise
            return b""  # an empty file has no last byte

    def exists(self, name: str) -> bool:
        """Whether there is a file."""
        try:
            self._send(lambda store: store.head(self._path_of(name)))
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """The files directly in a folder."""
        return list(self._list(folder)[0])

    def folders(self, folder: str) -> list[str]:
        """The folders directly in a folder."""
        return self._list(folder)[1]

    def files(self, folder: str) -> dict[str, File]:
        """Each file below a folder, by its path in it."""
        return self._list(folder, recursive=True)[0]

    def _list(self, folder: str, *, recursive: bool = False) -> tuple[dict[str, File], list[str]]:
        """The files and folders below a folder, by their path in it; none if it does not exist."""
        prefix = f"{top}/" if (top := self._path_of(folder)) else ""
        objects: Sequence[Mapping[str, Any]]
        try:
            if recursive:
                objects = self._send(
                    lambda store: [meta for page in store.list(prefix or None) for meta in page]
                )
                paths = (PurePosixPath(meta["path"]) for meta in objects)
                folders = {str(parent) for path in paths for parent in path.parents}
            else:
                page = self._send(lambda store: store.list_with_delimiter(prefix or None))
                objects, folders = page["objects"], set(page["common_prefixes"])
        except OSError as error:
            if isinstance(error, FileNotFoundError) or _NO_BUCKET in str(error):
                return {}, []
            raise
        files = {
            meta["path"].removeprefix(prefix): File(meta["size"], meta["last_modified"].timestamp())
            for meta in objects
            if meta["path"] not in {top, *folders}  # consoles put an empty object for a folder
        }
        return files, [path.removeprefix(prefix) for path in folders]

    def drop(self, *names: str) -> None:
        """Remove the files that exist; of S3 a thousand with one request."""
        paths = [self._path_of(name) for name in names]
        if self.drops_at_once and len(paths) > 1:
            self._send(lambda store: store.delete(paths), in_bulk=True)
            return
        for path in paths:
            with suppress(FileNotFoundError):
                self._send(methodcaller("delete", path))

    def drop_empty(self, folder: str) -> None:
        """Nothing: there are no folders without files."""

    def move(self, name: str, new_name: str) -> bool:
        """Move a file or folder; False if the new name is taken."""
        if self.exists(new_name) or self.files(new_name):
            return False
        for path in [""] if self.exists(name) else [f"/{file}" for file in self.files(name)]:
            old, new = self._path_of(f"{name}{path}"), self._path_of(f"{new_name}{path}")
            self._send(methodcaller("copy", old, new))
            self.drop(f"{name}{path}")
        return True

    def free(self) -> int | None:
        """None: buckets have no size."""
        return None

    def _send(self, request: Callable[["Opened"], T], *, in_bulk: bool = False) -> T:
        """Send a request, and retry it after transient errors."""
        from obstore.exceptions import AlreadyExistsError, BaseError

        def store() -> "Opened":
            if self._scheme == "memory":
                return _open_memory(self._bucket)
            return _open_store(self._scheme, self._bucket, self._options, in_bulk, _environment())

        for pause_s in (*pauses_s(), None):
            try:
                answer = request(store())
            except (BaseError, FileNotFoundError, ValueError) as error:
                message = _shorten_message(error)
                if isinstance(error, FileNotFoundError) and _NO_BUCKET not in message:
                    raise
                if isinstance(error, AlreadyExistsError) and not _BUSY.search(message):
                    raise
                if not self._is_transient(error, message):
                    raise OSError(message) from error
                if pause_s is None:
                    raise ConnectionError(message) from error
                REFUSED.add()
                time.sleep(pause_s)
            else:
                self._is_reached = True
                return answer
        raise AssertionError("the last attempt has no pause")

    def _is_transient(self, error: Exception, message: str) -> bool:
        from obstore.exceptions import GenericError

        if _BUSY.search(message):
            return True
        if not self._is_reached and _LAST_PLACE.search(message):
            return False  # no credentials
        if (status := _STATUS.search(message)) is not None:
            return int(status[1] or status[2]) in _MOMENTARY
        return isinstance(error, GenericError) and _CUT.search(message) is not None

    def _path_of(self, name: str) -> str:
        return f"{self._folder}/{name}".strip("/")


def pauses_s() -> Iterator[float]:
    """The seconds to wait before each retry: at random, up to 1, 2, 4, … 32."""
    for attempt in range(ATTEMPTS - 1):
        yield int.from_bytes(os.urandom(2)) / 2**16 * 2**attempt


def _parse_query(url: SplitResult, names: Sequence[str]) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(url.query).items()}
    if unknown := sorted(options.keys() - set(names)):
        place = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}".rstrip("/")
        raise InputError(
            f"{place} has the option {unknown[0]}, which is none of {', '.join(names)}; "
            "leave it out."
        )
    return options


def _environment() -> tuple[Any, ...]:
    """The sources of credentials: if they change, the next request uses the new ones."""
    prefixes = ("AWS_", "AZURE_", "GOOGLE_")
    variables = sorted((n, value) for n, value in os.environ.items() if n.startswith(prefixes))
    return (*variables, *_stat_key_files(), os.getpid())  # a forked process has no open connections


@lru_cache(8)  # connections stay open: opening one takes longer than a request
def _open_store(
    scheme: str, bucket: str, options: str, in_bulk: bool, _environment: tuple[Any, ...]
) -> "Opened":
    from obstore import store

    fields = json.loads(options)
    user, endpoint = fields["user"], fields.get("endpoint")
    shared: Any = {"client_options": {**_CLIENT, **_load_certificates()}, "retry_config": _RETRIES}
    if scheme == "s3":
        keys = {"access_key_id": user, "secret_access_key": fields["password"]} if user else {}
        signed = _build_s3_arguments(keys, fields.get("region"), endpoint)
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
def _open_memory(_name: str) -> "Opened":
    from obstore.store import MemoryStore

    return MemoryStore()


def _shorten_message(error: Exception) -> str:
    """An error of obstore in one line: of XML bodies only the code and the text."""
    message, _, _ = str(error).partition("\n\nDebug source")
    code, text = (re.search(f"<{tag}>(.*?)</{tag}>", message) for tag in ("Code", "Message"))
    if code is not None:
        message = f"{message.partition('<')[0]}{code[1]}{f', {text[1]}' if text else ''}"
    return " ".join(message.split()).rstrip(".")


def _stat_key_files() -> Iterator[tuple[str, int]]:
    """The files of keys, and when each was changed (0: it cannot be read)."""
    for path in _key_files():
        try:
            yield str(path), path.stat().st_mtime_ns
        except OSError:
            yield str(path), 0


def _build_s3_arguments(
    keys: Mapping[str, str], region: str | None, endpoint: str | None
) -> dict[str, Any]:
    """The arguments of obstore's S3Store; keys, region and endpoint of a URL come first."""
    profile = {} if keys and region and endpoint else _read_profile()
    region = region or _first_set("AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region")
    endpoint = endpoint or _first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = endpoint or profile.get("endpoint_url")
    config: dict[str, Any] = {"region": region or "us-east-1", **keys}
    if endpoint:
        split_web_address(endpoint, "the endpoint of S3 in the profile of AWS")
        config["endpoint"] = endpoint
    if keys or _first_set("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        return {"config": config}
    field = next((field for field in _BY_BOTO if field in profile), None)
    if field is None:
        config |= {ours: profile[theirs] for theirs, ours in _KEYS.items() if theirs in profile}
        return {"config": config}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise InputError(
            f"the profile of AWS signs in by {field}, which needs boto3: pip install boto3, or "
            'eval "$(aws configure export-credentials --format env)".'
        ) from error
    return {"config": config, "credential_provider": Boto3CredentialProvider()}


def _first_set(*variables: str) -> str | None:
    return next(filter(None, map(os.environ.get, variables)), None)


def _load_certificates() -> dict[str, bytes]:
    """The certificates of $AWS_CA_BUNDLE as an option of obstore's clients."""
    if not (path := os.environ.get("AWS_CA_BUNDLE")):
        return {}
    with input_errors(path, "AWS_CA_BUNDLE names a file of certificates"):
        return {"root_certificate": Path(path).read_bytes()}


def _key_files() -> Iterator[Path]:
    for name, usual in _FILES.items():
        try:
            yield Path(os.environ.get(name, usual)).expanduser()
        except RuntimeError:  # a user without a home
            continue


def _read_profile() -> dict[str, str]:
    """The fields of $AWS_PROFILE, or of the default profile, in both files."""
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    name, fields, is_known = profile or "default", dict[str, str](), False
    for path in _key_files():
        parser = RawConfigParser(strict=False, interpolation=None)
        try:
            parser.read(path, "utf-8")
        except (Error, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read ({error}); correct it.") from error
        for section in (name, f"profile {name}"):
            if parser.has_section(section):
                is_known, fields = True, {**parser[section], **fields}
    if profile and not is_known:
        raise InputError(f"there is no profile {profile} in {' or '.join(map(str, _key_files()))}.")
    return fields
