"""Log lines, each with its time and level and without secrets: as text, or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from pipeline.machine.secrets import Formatter, hidden

LOG = logging.getLogger("factsweep")
Form = Literal["text", "json"]
_TEXT = "%(asctime)s %(levelname)s %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"


class _Json(logging.Formatter):
    """A log line as one JSON object: time (ISO 8601), level, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": hidden(record.getMessage()),
        }
        return json.dumps(content, ensure_ascii=False)


def formatter(form: Form) -> logging.Formatter:
    """What writes a log record as a line."""
    return _Json() if form == "json" else Formatter(_TEXT, _TIME)


def to_stderr() -> None:
    """Have warnings and errors of this process written to its standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter("text"))
    handler.setLevel(logging.WARNING)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def use(form: Form) -> None:
    """Write what goes to the standard error in this form from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, Formatter | _Json):
            handler.setFormatter(formatter(form))


def line(text: str, form: Form = "text") -> str:
    """A sentence for the user as a log line."""
    values = {"msg": text, "levelname": "INFO", "levelno": logging.INFO}
    return formatter(form).format(logging.makeLogRecord(values))


def note(text: str) -> None:
    """Write a sentence for the user to the standard error, with its time where nobody watches."""
    sys.stderr.write(f"{text if sys.stderr.isatty() else line(text)}\n")
