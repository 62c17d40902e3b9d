"""The errors that factsweep raises on purpose.

FactsweepError            exit code 1: the run failed
├── InputError            exit code 2: wrong input; the message names it and the fix
│   ├── DamagedFileError  a published or given file cannot be read
│   ├── NotAtHandError    the hub does not answer, and a file of a model is not in its cache
│   ├── ArtifactHeldError another driver holds the artifact
│   └── UnavailableError  exit code 75: a store or server does not answer; try again later
├── DecodingError         too many prompts have no answer
└── StoppedError          the user stopped the run; finished answers are kept
    └── CostLimitError    so did max_cost
"""

from collections.abc import Iterator
from contextlib import contextmanager


class FactsweepError(Exception):
    """A run that cannot continue; the message is one plain sentence."""

    exit_code = 1


class InputError(FactsweepError):
    """The user's input is wrong: the message names file, row or field, and the fix."""

    exit_code = 2


class DamagedFileError(InputError):
    """A Parquet file is truncated, empty or foreign; `name` is that of a shard in its store."""

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message, name)
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])


class NotAtHandError(InputError):
    """The hub does not answer, and a file of a model is not in its cache."""


class ArtifactHeldError(InputError):
    """Another driver is writing the same artifact."""


class UnavailableError(InputError):
    """A store or server did not answer; the same command may succeed later (EX_TEMPFAIL)."""

    exit_code = 75


class StoppedError(FactsweepError):
    """The run was asked to stop; every finished answer is published."""

    exit_code = 130


class CostLimitError(StoppedError):
    """The next request might exceed max_cost; every finished answer is published."""


class DecodingError(FactsweepError):
    """More prompts failed than the configuration allows."""


@contextmanager
def collect_faults(sentences: list[str]) -> Iterator[None]:
    """Append the message of an InputError, so that several faults are listed at once."""
    try:
        yield
    except UnavailableError:
        raise
    except InputError as error:
        sentences.append(str(error))


@contextmanager
def input_errors(source: str, fix: str) -> Iterator[None]:
    """Turn any error of a library over a file of the user's into one sentence.

    Raises:
        InputError: the source cannot be read, with the reason and the fix.
    """
    try:
        yield
    except FactsweepError:
        raise
    except Exception as error:
        raise InputError(f"{source} cannot be read ({reason(error)}); {fix}.") from error


def reason(error: BaseException) -> str:
    """The first line of an error, with its class unless the line alone is a sentence."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "stopped"  # Ray raises one without a text
    line = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    is_sentence = isinstance(error, OSError | ValueError) and " " in line
    return line if is_sentence else f"{type(error).__name__}: {line}".rstrip(": ")


def printable(text: str) -> str:
    r"""The text, or Python's notation of it if a character of it is not printable.

    >>> [printable(text) for text in ("Lima", "a line\n")]
    ['Lima', "'a line\\n'"]
    """
    return text if text.isprintable() else repr(text)
