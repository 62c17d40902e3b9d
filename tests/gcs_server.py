"""A server of Google's XML protocol on this machine: moto's S3, which is nearly the same.

What differs is translated: the condition of a put, and what a copy is made of.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

_HEADERS = {
    "HTTP_X_GOOG_COPY_SOURCE": "HTTP_X_AMZ_COPY_SOURCE",
    "HTTP_X_GOOG_METADATA_DIRECTIVE": "HTTP_X_AMZ_METADATA_DIRECTIVE",
}


_SIGNED = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, Signature=none"


class Translating:
    """A WSGI application that takes requests to Google Cloud Storage for one of S3."""

    def __init__(self, s3: Callable[..., Iterable[bytes]]) -> None:
        self._s3 = s3

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        for theirs, ours in _HEADERS.items():
            if theirs in environ:
                environ[ours] = environ.pop(theirs)
        environ["HTTP_AUTHORIZATION"] = _SIGNED  # nobody looks at who asks
        return self._s3(environ, start)


if __name__ == "__main__":
    application = Translating(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    sys.stderr.write(f" * Running on http://127.0.0.1:{server.port}\n")
    server.serve_forever()
