"""A hub on loopback: the part of its protocol that huggingface_hub speaks, and faults on demand."""

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import huggingface_hub.constants
import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LARGE = 1000  # from this size a file is one of LFS, as on the hub


@dataclass
class Hub:
    """What it serves: repositories by their path (datasets/… for data), and how it fails.

    `cut`: bytes after which the next download of a file ends. `refuse`: status and error code of
    all that is asked of a repository. `limited`: how many of the next requests get a 429, with
    `limit_headers`. `corrupt`: files of which the next download has a byte wrong. `broken`: no
    download works, from the next cut on if `broken_after_cut`.
    """

    repositories: dict[str, dict[str, bytes]]
    url: str = ""
    cut: dict[str, int] = field(default_factory=dict)
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)
    limited: int = 0
    limit_headers: dict[str, str] = field(default_factory=lambda: {"Retry-After": "0"})
    broken_after_cut: bool = False
    broken: bool = False
    corrupt: set[str] = field(default_factory=set)
    ranges: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    downloads: Counter[str] = field(default_factory=Counter)


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve it on a free port of this machine."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(hub: Hub, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Have this process ask it, and keep what it gives in that folder."""
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    constants = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": template,
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": False,
    }
    for name, value in constants.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass

    def _answer(self) -> None:
        self.hub.tokens.add(self.headers.get("Authorization"))
        path = unquote(urlsplit(self.path).path).strip("/")
        api = re.fullmatch(
            r"api/(?:models/|(datasets/))([^/]+/[^/]+)/(revision|tree)/([^/]+)", path
        )
        file = re.fullmatch(r"((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        name = f"{api[1] or ''}{api[2]}" if api else file[1] if file else ""
        if self.hub.limited:
            self.hub.limited -= 1
            self._send(429, b"{}", self.hub.limit_headers)
        elif name in self.hub.refuse:
            status, code = self.hub.refuse[name]
            self._send(status, b"{}", {"X-Error-Code": code})
        elif name not in self.hub.repositories:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif (api[4] if api else file[2] if file else "") not in ("main", COMMIT):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif api:
            listing = self._info(name) if api[3] == "revision" else self._tree(name)
            self._send(200, json.dumps(listing).encode())
        elif file:
            self._file(name, file[3])

    def _info(self, name: str) -> dict[str, Any]:
        files = [{"rfilename": path} for path in self.hub.repositories[name]]
        return {"id": name.removeprefix("datasets/"), "sha": COMMIT, "siblings": files}

    def _tree(self, name: str) -> list[dict[str, Any]]:
        entries = []
        for path, content in self.hub.repositories[name].items():
            entry = {"type": "file", "path": path, "size": len(content), "oid": _git(content)}
            if len(content) >= _LARGE:
                oid = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 130}
            entries.append(entry)
        return entries

    def _file(self, name: str, path: str) -> None:
        content = self.hub.repositories[name][path]
        large = len(content) >= _LARGE
        etag = hashlib.sha256(content).hexdigest() if large else _git(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if self.command == "HEAD":
            self._send(200, content, headers)
            return
        if self.hub.broken:
            self._send(500, b"{}")
            return
        self.hub.downloads[path] += 1
        byte_range = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(byte_range[1]) if byte_range else 0
        if byte_range:
            self.hub.ranges.append(byte_range[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if path in self.hub.corrupt:
            self.hub.corrupt.remove(path)
            content = content[:-1] + bytes([content[-1] ^ 1])
        self._send(
            206 if byte_range else 200, content[start:], headers, self.hub.cut.pop(path, None)
        )

    def _send(
        self,
        status: int,
        content: bytes,
        headers: dict[str, str] | None = None,
        cut: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:cut])
        if cut is not None:
            self.hub.broken = self.hub.broken_after_cut
            self.close_connection = True


def _git(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
