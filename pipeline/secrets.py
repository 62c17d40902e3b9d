"""The secrets that this process was given, so that none of them is ever written.

They come from the environment, or from files that it names, as a pod mounts them.
"""

import logging
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from operators.redact import is_secret, redactor

# Names a file whose whole content is a token.
_FILES = ("HF_TOKEN_PATH",)


def known() -> frozenset[str]:
    """The values of all variables that are secrets by their names, and the tokens in files."""
    return frozenset(each for each in _given() if each)


def _given() -> Iterator[str]:
    yield from (value for name, value in os.environ.items() if is_secret(name))
    for name in _FILES:
        path = Path(os.environ.get(name, ""))
        if path.is_file():
            yield path.read_text(errors="replace").strip()


def hidden(text: str) -> str:
    """A text for a terminal, a log or a message, without secrets."""
    return redactor(known())(text)


def hidden_traceback() -> str:
    """The traceback of the error that is being handled, without secrets."""
    return hidden(traceback.format_exc())


class Formatter(logging.Formatter):
    """A log line without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return hidden(super().format(record))
