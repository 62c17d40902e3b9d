"""Log lines, each with its time and level and without secrets: as text, or as JSON."""

import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from typing import Literal

from factsweep.pipeline.machine.secrets import Formatter, hidden

LOG = logging.getLogger("factsweep")
Form = Literal["text", "json"]
_TEXT = "%(asctime)s %(levelname)s %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"
_LEVEL = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_HEAD = re.compile(
    rf"(?:\([^)]*\) )*(?:(?P<time>\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d) (?P<level>{_LEVEL})"
    rf"|(?P<its_level>{_LEVEL}) (?P<its_time>\d\d-\d\d \d\d:\d\d:\d\d)) "
)
_UNKNOWN = dict.fromkeys(("time", "level", "run", "engine", "shard", "message"))
_AT = re.compile(r" engine \w+ (begins|has published) shard (\S+)$")


class _Json(logging.Formatter):
    """A log line as one JSON object: time (ISO 8601), level, run, engine, shard, message."""

    def __init__(self, run: str | None = None) -> None:
        super().__init__()
        self._run = run

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = hidden(record.getMessage())
        return _object(time=time, level=record.levelname, run=self._run, message=message)


def _object(**fields: str | int | None) -> str:
    return json.dumps({**_UNKNOWN, **fields}, ensure_ascii=False)


def formatter(form: Form, run: str | None = None) -> logging.Formatter:
    """A formatter of log lines, of a run if there is one."""
    return _Json(run) if form == "json" else Formatter(_TEXT, _TIME)


def is_note(line: str) -> bool:
    """Whether a line of an engine's log only names the shard that it is at."""
    return _AT.search(line) is not None


def structure_log(text: str, run: str, engine: int) -> str:
    """The log of an engine as JSON lines.

    Time and level are those at the start of a line, ours or vLLM's; else those of the line before.
    The shard is the one that the engine began last.
    """
    time: str | None = None
    level, shard = "INFO", None
    objects = []
    for line in text.splitlines():
        if head := _HEAD.match(line):
            level = head["level"] or head["its_level"]
            local = head["time"] or f"{datetime.now().year}-{head['its_time']}"
            try:
                moment = datetime.strptime(local, _TIME).astimezone(UTC)
                time = moment.isoformat(timespec="milliseconds")
            except ValueError:
                time = None
        if (event := _AT.search(line)) and event[1] == "begins":
            shard = event[2]
        fields = {"time": time, "level": level, "run": run, "engine": engine, "shard": shard}
        objects.append(_object(**fields, message=line))
    return "".join(f"{line}\n" for line in objects)


def to_stderr() -> None:
    """Write warnings and errors of this process to its standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter("text"))
    handler.setLevel(logging.WARNING)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def use(form: Form) -> None:
    """Write log lines on the standard error in this form from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, Formatter | _Json):
            handler.setFormatter(formatter(form))


def line(text: str, form: Form = "text") -> str:
    """A message to the user as a log line."""
    values = {"msg": text, "levelname": "INFO", "levelno": logging.INFO}
    return formatter(form).format(logging.makeLogRecord(values))


def note(text: str) -> None:
    """Write a message to the standard error, with its time unless that is a terminal."""
    sys.stderr.write(f"{text if sys.stderr.isatty() else line(text)}\n")


PLAIN_EVERY_S = 30.0


class Meter:
    """A live line on the terminal; without a terminal, a log line every half minute."""

    def __init__(self, title: str, form: Form = "text") -> None:
        from rich.console import Console
        from rich.live import Live

        self.title = title
        self._form = form
        self._console = Console(file=sys.stderr)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._printed = time.monotonic()

    def __enter__(self) -> "Meter":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, text: str) -> None:
        """Draw the line; every half minute log it, and print it without a terminal."""
        from rich.text import Text

        text = f"{self.title}: {text}"
        if self._console.is_terminal:
            self._live.update(Text(text))
        if time.monotonic() - self._printed >= PLAIN_EVERY_S:
            self._printed = time.monotonic()
            if self._console.is_terminal:
                LOG.info("%s", text)
            else:
                self.say(text)

    def say(self, text: str) -> None:
        """Print a message above the line, and log it."""
        LOG.info("%s", text)
        message = text if self._console.is_terminal else line(text, self._form)
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)
