"""Whether the Ray at cluster.address can be reached."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from factsweep.pipeline.cluster.machine import Finding
from factsweep.pipeline.config.run import Run

_REACHED_WITHIN_S = 5.0
_TOKEN = Path(".ray/auth_token")  # in the home folder


def checks(run: Run) -> Iterator[Finding]:
    """Findings on the address and the token of a Ray; none without cluster.address."""
    if run.cluster.address is not None:
        yield _reached(run.cluster.address)
        yield _token()


def _reached(address: str) -> Finding:
    """Whether anything listens at an address; `auto` is looked up by Ray itself."""
    place = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit():
        return Finding.of("address", f"{address}, which Ray finds by itself")
    try:
        socket.create_connection((host, int(port)), _REACHED_WITHIN_S).close()
    except OSError as error:
        fix = "start a Ray there (ray start --head), or open the port in the firewall"
        return Finding.of("address", f"{place}: {error.strerror or error}", fails=fix)
    return Finding.of("address", f"{place} listens")


def _token() -> Finding:
    """Whether there is a token to show to a Ray that asks for one, which it does unless told."""
    if os.environ.get("RAY_AUTH_MODE") == "disabled":
        return Finding.of("token", "switched off (RAY_AUTH_MODE)")
    named = [name for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH") if os.environ.get(name)]
    if named or (Path.home() / _TOKEN).is_file():
        return Finding.of("token", f"in {named[0] if named else f'~/{_TOKEN}'}")
    fix = "a Ray that asks for one refuses; set RAY_AUTH_TOKEN to that of the head"
    return Finding.of("token", "there is none", warns=fix)
