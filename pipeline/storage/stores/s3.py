"""S3, by boto3, which asks a store that does not answer again for a minute or two."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from factsweep.pipeline.storage.stores import s3_client
from factsweep.pipeline.storage.stores.remote import Entry, Remote, query
from factsweep.pipeline.storage.stores.s3_client import Caller

_EXISTS = "PreconditionFailed"
_AT_ONCE = "ConditionalRequestConflict"  # another put of the same name is going on: ask again
# What a server says of single objects when it is asked for too much at once.
_BUSY = ("SlowDown", "ServiceUnavailable", "InternalError", "OperationAborted", "RequestTimeout")
_EMPTY = "InvalidRange"  # a file without a single byte has no last one
_GONE = ("NoSuchKey", "404", "NotFound")
_AT_ONCE_DROPPED = 1000  # S3 takes no more in one request
_OPTIONS = ("endpoint_override", "region", "scheme")


class Bucket(Remote):
    """The folder of a bucket that a URL names: s3://[key:secret@]bucket/folder.

    `endpoint_override`, `region` and `scheme` may follow as a query; without them, and without a
    key, the environment is asked. What fails raises an OSError.

    Raises:
        InputError: the URL has another option.
    """

    creates_once = drops_at_once = True

    def __init__(self, root: str) -> None:
        super().__init__(root)
        url = urlsplit(root)
        self._name = url.netloc.rpartition("@")[2]
        self._folder = unquote(url.path).strip("/")
        self._key = unquote(url.username or "") or None
        self._secret = unquote(url.password or "") or None
        self._options = query(url, _OPTIONS)

    @cached_property
    def _caller(self) -> Caller:
        endpoint, scheme = map(self._options.get, ("endpoint_override", "scheme"))
        url = f"{scheme or 'https'}://{endpoint}" if endpoint else None
        return s3_client.caller(url, self._options.get("region"), self._key, self._secret)

    @property
    def _client(self) -> Any:
        return s3_client.client(self._caller)

    def put(self, name: str, content: bytes) -> None:
        """Put a file: one request."""
        with _as_os_error():
            self._client.put_object(**self._place(name), Body=content)

    def create(self, name: str, content: bytes) -> bool:
        """Put a file unless there is one of that name; whether it was put."""
        from botocore.exceptions import ClientError

        with _as_os_error():
            pauses = s3_client.pauses_s()
            while True:
                try:
                    self._client.put_object(**self._place(name), Body=content, IfNoneMatch="*")
                except ClientError as error:
                    code = error.response["Error"]["Code"]
                    if code == _EXISTS:
                        return False
                    pause_s = next(pauses, None)
                    if code != _AT_ONCE or pause_s is None:
                        raise
                    s3_client.REFUSED.add()
                    time.sleep(pause_s)
                else:
                    return True

    def get(self, name: str, last_bytes: int | None = None) -> bytes:
        """The content of a file, or its end: one request.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        from botocore.exceptions import ClientError

        part = {} if last_bytes is None else {"Range": f"bytes=-{last_bytes}"}
        with _as_os_error():
            try:
                return bytes(self._client.get_object(**self._place(name), **part)["Body"].read())
            except ClientError as error:
                if error.response["Error"]["Code"] != _EMPTY:
                    raise
                return b""

    def exists(self, name: str) -> bool:
        """Whether there is a file: one request."""
        try:
            with _as_os_error():
                self._client.head_object(**self._place(name))
        except FileNotFoundError:
            return False
        return True

    def entries(self, folder: str, *, recursive: bool = False) -> list[Entry]:
        """What lies right under a folder, or below it, sorted; nothing if it is not there."""
        key = self._place(folder)["Key"]
        asked = {"Bucket": self._name, "Prefix": f"{key}/" if key else ""}
        asked |= {} if recursive else {"Delimiter": "/"}
        found: list[Entry] = []
        with suppress(FileNotFoundError), _as_os_error("NoSuchBucket"):
            for page in self._client.get_paginator("list_objects_v2").paginate(**asked):
                for each in page.get("Contents", ()):
                    if not each["Key"].endswith("/"):  # an empty object in place of a folder
                        written = each["LastModified"].timestamp()
                        found.append(Entry(self._below(each["Key"]), each["Size"], written))
                folders = (each["Prefix"][:-1] for each in page.get("CommonPrefixes", ()))
                found += [Entry(self._below(each), None, 0.0) for each in folders]
        return sorted(found)

    def move(self, name: str, new: str) -> None:
        """Give a file another name; a large one is copied in parts."""
        with _as_os_error():
            self._client.copy(self._place(name), *self._place(new).values())
            self._client.delete_object(**self._place(name))

    def drop(self, *names: str) -> None:
        """Remove files, those that are there: one request, or one for each thousand of them."""
        with _as_os_error():
            if len(names) == 1:
                self._client.delete_object(**self._place(names[0]))
                return
            for start in range(0, len(names), _AT_ONCE_DROPPED):
                part = names[start : start + _AT_ONCE_DROPPED]
                self._drop_keys([self._place(name)["Key"] for name in part])

    def _drop_keys(self, keys: list[str]) -> None:
        """Remove objects; those that the answer says to ask for again are, after a pause."""
        pauses = s3_client.pauses_s()
        while True:
            objects = [{"Key": key} for key in keys]
            asked = {"Objects": objects, "Quiet": True}
            errors = self._client.delete_objects(Bucket=self._name, Delete=asked).get("Errors")
            if not errors:
                return
            pause_s = next(pauses, None)
            fatal = [each for each in errors if each.get("Code") not in _BUSY]
            if fatal or pause_s is None:
                first = (fatal or errors)[0]
                raise OSError(f"{first.get('Key')}: {first.get('Message')}")
            keys = [error["Key"] for error in errors]
            s3_client.REFUSED.add()
            time.sleep(pause_s)

    def _below(self, key: str) -> str:
        """The path in the store of an object."""
        return key.removeprefix(f"{self._folder}/" if self._folder else "")

    def _place(self, name: str) -> dict[str, str]:
        return {"Bucket": self._name, "Key": f"{self._folder}/{name}".strip("/")}


@contextmanager
def _as_os_error(*gone: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in (*_GONE, *gone):
            raise FileNotFoundError(str(error)) from error
        raise OSError(str(error)) from error
    except BotoCoreError as error:
        raise OSError(str(error)) from error
