"""The secrets of this process, in variables or files, which must never be written."""

import logging
import os
import traceback
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
from pathlib import Path

from factsweep.operators.errors import InputError
from factsweep.operators.wording import escape_invisible
from factsweep.operators.wording.redaction import is_secret, redactor

# Further variables that are secrets: anyone with the URL of a webhook may post there.
_OTHERS = ("_KEY", "_NOTIFY_URL", "_WEBHOOK_URL")


def collect_secrets() -> frozenset[str]:
    """The values of all variables that are secrets by their names, and the tokens in files."""
    return frozenset(filter(None, _list_secrets()))


def _list_secrets() -> Iterator[str]:
    for name, value in os.environ.items():
        if is_secret(name) or name.endswith(_OTHERS):
            yield value
        # OPENAI_API_KEY_FILE names a file with the value of OPENAI_API_KEY.
        if name.endswith("_FILE") and is_secret(name.removesuffix("_FILE")):
            yield _read_file(name, "")
    hub = os.environ.get("HF_HOME", "~/.cache/huggingface")
    yield _read_file("HF_TOKEN_PATH", f"{hub}/token")
    profiles = ConfigParser(interpolation=None)
    with suppress(ConfigError):  # its readers report it
        profiles.read_string(_read_file("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    for profile in profiles.values():
        yield from (value for name, value in profile.items() if is_secret(name))


def _read_file(variable: str, default: str) -> str:
    """The text of the file that a variable names, or of the default one; empty if it is missing."""
    try:
        path = Path(os.environ.get(variable, default)).expanduser()
        return path.read_text("utf-8", errors="replace").strip() if path.is_file() else ""
    except (OSError, RuntimeError):  # not readable, or the user has no home
        return ""


def hidden(text: str) -> str:
    """A text for a terminal, a log or a message: without secrets and control characters."""
    return escape_invisible(redactor(collect_secrets())(text))


def refuse(text: str, source: str) -> None:
    """Refuse a text with a secret that others could read."""
    if redactor(collect_secrets())(text) != text:
        raise InputError(
            f"{source} holds a secret, such as a key in a URL, which others could read; put it "
            "into the environment of the command."
        )


def hidden_traceback() -> str:
    """The traceback of the error that is being handled, without secrets."""
    return hidden(traceback.format_exc())


class Formatter(logging.Formatter):
    r"""A log line without secrets.

    The lines of a message after the first are indented, so that no value looks like a line.

    >>> record = logging.makeLogRecord({"msg": "run %s", "args": ("a\n2026-01-01 INFO done",)})
    >>> Formatter().format(record)
    'run a\n  2026-01-01 INFO done'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return "\n  ".join(hidden(super().format(record)).splitlines())
