"""The job of a cluster: whether its time is enough to stop in, and whether its Ray is reached."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from factsweep.pipeline.config.cluster import Slurm
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.doctor.finding import Finding

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_REACHED_WITHIN_S = 5.0
_TOKEN = Path(".ray/auth_token")  # in the home folder


def checks(run: Run) -> Iterator[Finding]:
    """What a job is given, and what it connects to."""
    if isinstance(run.cluster.launch, Slurm):
        yield _time_limit(run.cluster.launch, run.cluster.start_s)
    if run.cluster.address is not None:
        yield _reached(run.cluster.address)
        yield _token()


def seconds(time: str) -> int | None:
    """Slurm's notation of a time, in seconds; null: it is none.

    >>> seconds("90"), seconds("24:00:00"), seconds("2-12"), seconds("UNLIMITED")
    (5400, 86400, 216000, None)
    """
    found = _TIME.fullmatch(time)
    if found is None:
        return None
    days, first, second, third = (int(each) if each else 0 for each in found.groups())
    if found[1]:  # days-hours[:minutes[:seconds]]
        return ((days * 24 + first) * 60 + second) * 60 + third
    if found[4]:  # hours:minutes:seconds
        return (first * 60 + second) * 60 + third
    return first * 60 + second  # minutes[:seconds]


def _time_limit(launch: Slurm, start_s: float) -> Finding:
    """Whether a start is worth it: loading and stopping take their part of each."""
    limit = seconds(launch.time)
    told = f"{launch.time}, told to stop {launch.stop_s} s before"
    if limit is None:
        fix = "give Slurm's notation: minutes, hours:minutes:seconds or days-hours"
        return Finding.of("time limit", told, fails=fix)
    fix = "a start would end before it has done anything; give cluster.launch.time more"
    slow = f"loading may take cluster.start_s={start_s:g} of it; give cluster.launch.time more"
    fails = fix if limit <= 2 * launch.stop_s else ""
    warns = slow if limit <= 2 * launch.stop_s + start_s else ""
    return Finding.of("time limit", told, fails=fails, warns=warns)


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
