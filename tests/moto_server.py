"""moto's S3 on this machine, plain or as another server: `moto_server.py [busy|google]`.

A file is created once, as on S3: moto checks whether it exists and puts it later, so that several
clients that ask at once might all succeed.
"""

import sys
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import count
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

_BUSY_EVERY = 8
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_OF_GOOGLE = {
    "HTTP_X_GOOG_COPY_SOURCE": "HTTP_X_AMZ_COPY_SOURCE",
    "HTTP_X_GOOG_METADATA_DIRECTIVE": "HTTP_X_AMZ_METADATA_DIRECTIVE",
}
_SIGNED = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, Signature=none"


def creating_once(s3: Application) -> Application:
    """Conditional puts run one at a time, once their content has arrived."""
    creating = Lock()

    def answer(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("HTTP_IF_NONE_MATCH") != "*":
            return s3(environ, start)
        environ["wsgi.input"] = BytesIO(_body(environ))
        with creating:
            return s3(environ, start)

    return answer


def busy(s3: Application) -> Application:
    """Every eighth request gets 503 Slow Down."""
    n = count(1)

    def answer(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        if next(n) % _BUSY_EVERY:
            return s3(environ, start)
        _body(environ)
        start("503 Slow Down", [("Content-Type", "application/xml")])
        return [_SLOW_DOWN]

    return answer


def google(s3: Application) -> Application:
    """Google's XML protocol, which is nearly S3's: what differs is translated."""

    def answer(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        for theirs, ours in _OF_GOOGLE.items():
            if theirs in environ:
                environ[ours] = environ.pop(theirs)
        environ["HTTP_AUTHORIZATION"] = _SIGNED  # not checked
        return s3(environ, start)

    return answer


def _body(environ: Environ) -> bytes:
    content: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return content


if __name__ == "__main__":
    application = creating_once(DomainDispatcherApplication(create_backend_app))
    for name in sys.argv[1:]:
        application = {"busy": busy, "google": google}[name](application)
    run_simple("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
