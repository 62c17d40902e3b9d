"""The root cause of a failed task or a dead engine, in one line."""

import re
from pathlib import Path

from ray.exceptions import RayError, RayTaskError

from factsweep.operators.errors import DecodingError, FactsweepError
from factsweep.pipeline.machine import logs
from factsweep.pipeline.machine.secrets import hidden

SILENT = "it wrote nothing, so it was killed from outside, perhaps for lack of memory"
_READ_BYTES = 2**18
_LONGEST = 400
_LAST = 8  # lines of a log at the end of a message
# The last line of a traceback, bare or behind the prefixes of vLLM's processes.
_RAISED = re.compile(
    r"^(?:\([^)]*\) )*(?:ERROR [^\]]*\] )?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b:? ?.*)$"
)
# The interpreter, the C++ library and the watchdog write these at a sudden end.
_FATAL = re.compile(r"^(Fatal Python error: .*|terminate called .*|Timeout \(.*\)!)$")
_ELSEWHERE = re.compile(r"root cause|stack trace|EngineDeadError|EngineGenerateError", re.I)


def find_task_error(error: BaseException) -> BaseException:
    """The first error of factsweep, the system or Ray in the chain of causes, or else `error`."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, FactsweepError | OSError) and not hasattr(link, "cause"):
            return link
        if isinstance(link, RayError) and not isinstance(link, RayTaskError):
            return wrap_ray_error(link)
        link = getattr(link, "cause", None) or link.__cause__
    return error


def wrap_ray_error(error: BaseException) -> DecodingError:
    """A DecodingError for an error of Ray's own."""
    return DecodingError(
        f"Ray itself failed during the run ({_shorten(_one_line(error))}); published answers are "
        "kept, so look for the cause in the logs of its last session, and run again."
    )


def find_cause(error: BaseException, log: Path) -> str:
    """The cause of an engine's error, from its log if the error only points there."""
    text = _one_line(error)
    return find_cause_in_log(log) if _ELSEWHERE.search(text) else _shorten(text)


def find_cause_in_log(log: Path) -> str:
    """The last error in the standard error or output of a process, or its last lines.

    Lines that only point to another error are skipped.
    """
    outputs = [_read_lines(path) for path in (log, log.with_suffix(".out"))]
    for lines in outputs:
        candidates = [line for line in reversed(lines) if not _ELSEWHERE.search(line)]
        matches = (_RAISED.match(line) or _FATAL.match(line) for line in candidates)
        if match := next(filter(None, matches), None):
            return _shorten(match[1])
    last = [line for lines in outputs for line in lines if not logs.is_note(line)][-3:]
    return _shorten(" / ".join(last)) if last else SILENT


def add_log_lines(error: DecodingError, log: Path) -> DecodingError:
    """The error with the last lines of an engine's log as notes, if the log is on this machine."""
    for line in (_read_lines(log) or _read_lines(log.with_suffix(".out")))[-_LAST:]:
        error.add_note(f"its log: {_shorten(line)}")
    return error


def read_log(log: Path) -> str:
    """The standard output and error of a process, the last quarter megabyte of each."""
    return "\n".join(line for path in (log.with_suffix(".out"), log) for line in _read_lines(path))


def find_own_log() -> Path:
    """The file of this process's standard error."""
    return Path("/proc/self/fd/2").resolve()


def _read_lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _READ_BYTES))
        text = file.read().decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")


def _shorten(text: str) -> str:
    redacted = hidden(text)
    return redacted if len(redacted) <= _LONGEST else f"{redacted[:_LONGEST]}…"
