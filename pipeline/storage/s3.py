"""S3 as Arrow does not know it: a file is created only if there is none of its name."""

from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from operators.errors import InputError

_EXISTS = "PreconditionFailed"
_AT_ONCE = "ConditionalRequestConflict"  # another put of the same name is going on: ask again


class Bucket:
    """The folder of a bucket that a URL names, as Arrow reads it: s3://[key:secret@]bucket/folder.

    `region`, `scheme` and `endpoint_override` may follow as a query; without them, and without a
    key, boto3 finds region, endpoint and credentials where Arrow does.
    """

    def __init__(self, root: str) -> None:
        self._url = urlsplit(root)
        self._options = {name: each[-1] for name, each in parse_qs(self._url.query).items()}

    @cached_property
    def _client(self) -> Any:
        import boto3

        endpoint = self._options.get("endpoint_override")
        scheme = self._options.get("scheme", "https")
        return boto3.client(
            "s3",
            region_name=self._options.get("region"),
            endpoint_url=f"{scheme}://{endpoint}" if endpoint else None,
            aws_access_key_id=unquote(self._url.username or "") or None,
            aws_secret_access_key=unquote(self._url.password or "") or None,
        )

    def create(self, name: str, content: bytes, where: str) -> bool:
        """Put a file unless there is one of that name; whether it was put.

        Raises:
            InputError: the bucket refuses or cannot be reached; the message says `where`.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        place = {
            "Bucket": self._url.netloc.rpartition("@")[2],
            "Key": f"{self._url.path}/{name}".strip("/"),
        }
        while True:
            try:
                self._client.put_object(**place, Body=content, IfNoneMatch="*")
            except (BotoCoreError, ClientError) as error:
                code = getattr(error, "response", {}).get("Error", {}).get("Code")
                if code == _EXISTS:
                    return False
                if code != _AT_ONCE:
                    raise InputError(
                        f"{where} cannot be written ({error}); check the bucket, the network and "
                        "the credentials in the environment; what is published is untouched."
                    ) from error
            else:
                return True
