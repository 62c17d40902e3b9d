"""Log lines, each with its time and level and without secrets."""

import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from factsweep.operators.errors import FactsweepError, InputError, reason
from factsweep.pipeline.machine.secrets import Formatter, hidden

LOG = logging.getLogger("factsweep")
FORMATTER = Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
_AT = re.compile(r" engine \w+ (begins|has published) shard \S+$")


def is_note(line: str) -> bool:
    """Whether a line of an engine's log only names the shard that it is at."""
    return _AT.search(line) is not None


def log_to_stderr() -> None:
    """Write warnings and errors of this process to its standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTER)
    handler.setLevel(logging.WARNING)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def line(text: str) -> str:
    """A message to the user as a log line."""
    values = {"msg": text, "levelname": "INFO", "levelno": logging.INFO}
    return FORMATTER.format(logging.makeLogRecord(values))


def note(text: str) -> None:
    """Write a message to the standard error, with its time unless that is a terminal."""
    sys.stderr.write(f"{hidden(text) if sys.stderr.isatty() else line(text)}\n")


def say(text: str) -> None:
    """Write a message to the standard error without its time."""
    sys.stderr.write(f"{hidden(text)}\n")


LOST = set[str]()  # the files of this run that could not be written


@contextmanager
def may_fail(files: str) -> Iterator[None]:
    """Write files that no number needs: errors end the block with one warning per run."""
    try:
        yield
    except (InputError, OSError) as error:
        if files not in LOST:
            LOST.add(files)
            cause = str(error) if isinstance(error, FactsweepError) else f"{reason(error)}."
            LOG.warning("the run continues without %s: %s", files, cause)


PLAIN_EVERY_S = 30.0


class Meter:
    """A live line on the terminal; without a terminal, a log line every half minute."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self.title = title
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

        text = hidden(f"{self.title}: {text}")
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
        message = hidden(text) if self._console.is_terminal else line(text)
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)
