"""moto's S3 on this machine, which answers every eighth request that it is asked too much."""

import sys
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

_EVERY = 8
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class Throttling:
    """A WSGI application in front of one of S3."""

    def __init__(self, s3: Callable[..., Iterable[bytes]]) -> None:
        self._s3 = s3
        self._n = count(1)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, or refuse it."""
        if next(self._n) % _EVERY:
            return self._s3(environ, start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("503 Slow Down", [("Content-Type", "application/xml")])
        return [_SLOW_DOWN]


if __name__ == "__main__":
    application = Throttling(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    sys.stderr.write(f" * Running on http://127.0.0.1:{server.port}\n")
    server.serve_forever()
