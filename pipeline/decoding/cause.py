"""Why a task failed; why an engine died, as its own log tells: the root cause, in one line."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ray.exceptions import RayError, RayTaskError

from factsweep.operators.errors import DecodingError, FactsweepError
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.secrets import hidden

SILENT = "it wrote nothing, so it was killed from outside, for want of memory say"
_READ_BYTES = 2**18
_LONGEST = 400
_LAST = 8  # lines of a log that a message ends with
# A line that a traceback ends with, bare or behind the prefixes of vLLM's processes.
_RAISED = re.compile(
    r"^(?:\([^)]*\) )*(?:ERROR [^\]]*\] )?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b:? ?.*)$"
)
# What the interpreter, the C++ library and the watchdog write of a sudden end.
_FATAL = re.compile(r"^(Fatal Python error: .*|terminate called .*|Timeout \(.*\)!)$")
_ELSEWHERE = re.compile(r"root cause|stack trace|EngineDeadError|EngineGenerateError", re.I)


def of_task(error: BaseException) -> BaseException:
    """The error of ours, of Ray or of its machine that a worker's error is about, or itself."""
    seen: BaseException | None = error
    while seen is not None:
        before = getattr(seen, "cause", None) or seen.__cause__
        if isinstance(seen, FactsweepError | OSError) and not hasattr(seen, "cause"):
            return seen
        if isinstance(seen, RayError) and not isinstance(seen, RayTaskError):
            return of_ray(seen)
        seen = before
    return error


def of_ray(error: BaseException) -> DecodingError:
    """What an error of Ray's own comes to; whose process it was, and how it ended, are told."""
    return DecodingError(
        f"Ray itself failed during the run ({_short(_whole(error))}); what is published is kept, "
        "so look for the cause in the logs of its last session, and run again."
    )


def of_error(error: BaseException, log: Path) -> str:
    """Why an engine raised an error; read from its log where the error points to it."""
    text = _whole(error)
    return of_log(log) if _ELSEWHERE.search(text) else _short(text)


def of_log(log: Path) -> str:
    """The last error in the log of a process, in what it wrote to its standard error or output.

    A line that only points to another one is passed over. Without any error these are the last
    lines.
    """
    written = [_lines(path) for path in (log, log.with_suffix(".out"))]
    for lines in written:
        if found := list(_errors(lines)):
            return _short(found[-1])
    last = [line for lines in written for line in lines if not logs.is_note(line)][-3:]
    return _short(" / ".join(last)) if last else SILENT


def with_log(error: DecodingError, log: Path) -> DecodingError:
    """An error that ends with the last lines that an engine wrote to its log, if it is here."""
    for line in last_lines(log):
        error.add_note(f"its log: {line}")
    return error


def last_lines(log: Path) -> list[str]:
    """The last lines that an engine wrote to its log, for a message; none of one elsewhere."""
    written = _lines(log) or _lines(log.with_suffix(".out"))
    return [_short(line) for line in written[-_LAST:]]


def whole_log(log: Path) -> str:
    """What a process wrote to its standard output and error, the last quarter megabyte of each."""
    return "\n".join(line for path in (log.with_suffix(".out"), log) for line in _lines(path))


def own_log() -> Path:
    """The file that the standard error of this process goes to, where it is a file."""
    return Path("/proc/self/fd/2").resolve()


def _errors(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        found = _RAISED.match(line) or _FATAL.match(line)
        if found and not _ELSEWHERE.search(line):
            yield found[1]


def _lines(path: Path) -> list[str]:
    """The last lines of a file that are not blank; none where there is no such file."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _READ_BYTES))
        text = file.read().decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _whole(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")


def _short(text: str) -> str:
    """A text without secrets that fits a message."""
    shown = hidden(text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
