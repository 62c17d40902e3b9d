"""Google Cloud Storage, by obstore: of several that create a file at once, one succeeds.

What is refused for a moment, or not answered, is asked again for two minutes. Credentials come
from where Google's own clients look for them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from factsweep.pipeline.storage.stores.remote import Entry, Remote, query

if TYPE_CHECKING:
    from obstore.store import GCSStore

_OPTIONS = ("endpoint_override", "scheme")
_CLIENT: Any = {"allow_http": True, "connect_timeout": "5s", "timeout": "30s"}
RETRIES: Any = {"max_retries": 10, "retry_timeout": timedelta(minutes=2)}


class Bucket(Remote):
    """The folder of a bucket that a URL names: gs://[anonymous@]bucket/folder.

    `endpoint_override` and `scheme` may follow as a query. What fails raises an OSError.

    Raises:
        InputError: the URL has another option.
    """

    creates_once = True

    def __init__(self, root: str) -> None:
        super().__init__(root)
        url = urlsplit(root)
        self._name = url.hostname or ""
        self._folder = unquote(url.path).strip("/")
        options = query(url, _OPTIONS)
        self._config: dict[str, Any] = {}
        if url.username == "anonymous":
            self._config |= {"skip_signature": True, "bearer_token": "none"}
        if host := options.get("endpoint_override"):
            self._config["base_url"] = f"{options.get('scheme', 'https')}://{host}"

    @cached_property
    def _store(self) -> "GCSStore":
        from obstore.store import GCSStore

        with _as_os_error():
            return GCSStore(
                self._name,
                prefix=self._folder,
                config=self._config,  # type: ignore[arg-type]
                client_options=_CLIENT,
                retry_config=RETRIES,
            )

    def put(self, name: str, content: bytes) -> None:
        """Put a file: one request."""
        with _as_os_error():
            self._store.put(name, content, use_multipart=False)

    def create(self, name: str, content: bytes) -> bool:
        """Put a file unless there is one of that name; whether it was put."""
        from obstore.exceptions import AlreadyExistsError

        with _as_os_error():
            try:
                self._store.put(name, content, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def get(self, name: str, last_bytes: int | None = None) -> bytes:
        """The content of a file, or its end.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        options: Any = {} if last_bytes is None else {"range": {"suffix": last_bytes}}
        with _as_os_error():
            return bytes(self._store.get(name, options=options).bytes())

    def exists(self, name: str) -> bool:
        """Whether there is a file."""
        try:
            with _as_os_error():
                self._store.head(name)
        except FileNotFoundError:
            return False
        return True

    def entries(self, folder: str, *, recursive: bool = False) -> list[Entry]:
        """What lies right under a folder, or below it, sorted; nothing if it is not there."""
        below = f"{folder}/" if folder else None
        with _as_os_error():
            if recursive:
                found = [meta for page in self._store.list(below) for meta in page]
                return sorted(map(_entry, found))
            page = self._store.list_with_delimiter(below)
            folders = [Entry(path, None, 0.0) for path in page["common_prefixes"]]
            return sorted([*folders, *map(_entry, page["objects"])])

    def move(self, name: str, new: str) -> None:
        """Give a file another name."""
        with _as_os_error():
            self._store.rename(name, new)

    def drop(self, *names: str) -> None:
        """Remove files, those that are there."""
        with _as_os_error():
            for name in names:
                try:
                    self._store.delete(name)
                except FileNotFoundError:
                    continue


def _entry(meta: Mapping[str, Any]) -> Entry:
    return Entry(meta["path"], meta["size"], meta["last_modified"].timestamp())


@contextmanager
def _as_os_error() -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        said, _, _ = str(error).partition("\n")  # the rest is how it looks inside of obstore
        raise OSError(said) from error
