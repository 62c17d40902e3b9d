"""The command `factsweep`: a verb, then Hydra overrides."""

import argparse
import atexit
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import NoReturn

from operators.errors import FactsweepError, InputError, StoppedError, reason
from pipeline.commands import (
    baseline,
    build,
    catalog,
    compare,
    describe,
    export,
    launch,
    model,
    nightly,
    prefetch,
    report,
    run,
    why,
)
from pipeline.config import folders
from pipeline.machine import secrets
from pipeline.machine.checkout import commit
from pipeline.machine.ending import end

_VERBS = (
    *(run, launch, prefetch, nightly, baseline),
    *(compare, report, export, build, describe, model, why, catalog),
)
_REST = ("overrides", "settings", "runs")  # what a verb takes any number of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 bad input, 3 or 4 of a gate."""
    asked = _parsed(arguments)
    if asked.config_dir is not None:
        os.environ[folders.VARIABLE] = asked.config_dir
    handler = logging.StreamHandler()
    handler.setFormatter(secrets.Formatter("factsweep: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    try:
        code = int(asked.run(asked))
        sys.stdout.flush()
        return code
    except FactsweepError as error:
        print(f"factsweep: {_printable(secrets.hidden(str(error)))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # of the machine or the network, which no code of ours foresaw
        print(f"factsweep: {_printable(secrets.hidden(_told(error)))}", file=sys.stderr)
        return InputError.exit_code
    except KeyboardInterrupt:
        print("factsweep: stopped; the next run resumes from what is published.", file=sys.stderr)
        return StoppedError.exit_code
    except Exception:  # a fault of ours; its traceback may quote what a library was given
        print(secrets.hidden_traceback(), file=sys.stderr)
        return 1


def _told(error: OSError) -> str:
    """An error of the operating system as a sentence."""
    where = f"{error.filename}: " if error.filename else ""
    return (
        f"{where}{error.strerror or reason(error)}; check the path, its rights, the room on the "
        "disk and the network, then run again."
    )


def _printable(text: str) -> str:
    """A message in which what no terminal prints is written as Python escapes it."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text.strip())


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; argparse takes no further ones behind an option, so they are added here."""
    parser = _parser()
    asked, late = parser.parse_known_args(arguments)
    rest: list[str] | None = next((vars(asked)[name] for name in _REST if name in asked), None)
    if late and (rest is None or any(each.startswith("-") for each in late)):
        parser.error(f"unknown arguments: {' '.join(late)}")
    if rest is not None:
        rest += late
    return asked


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="factsweep",
        description="Facts × templates × a model → answers → tables.",
        epilog="Exit codes: 0 done, 1 failed, 2 bad input; of a gate or a nightly 3 regression, "
        "4 not enough evidence.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    for module in _VERBS:
        module.add(verbs)
    own = f"a folder with models, data sets, … of your own; default {folders.OWN}/, if it exists"
    for verb in verbs.choices.values():
        verb.add_argument("--config-dir", metavar="DIR", help=own)
    return parser


class _Version(argparse.Action):
    """Prints the version, and the commit in a checkout."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        found = commit()
        print(f"factsweep {metadata.version('factsweep')}{f' (commit {found})' if found else ''}")
        parser.exit()


def command() -> NoReturn:
    """The command line of this process; ends the process with the exit code."""
    try:
        code = main()
    except KeyboardInterrupt:  # before the work began, or once more while it was being stopped
        code = StoppedError.exit_code
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit._run_exitfuncs()  # what the interpreter would run: Ray's, logging's and the like
    end(code)


if __name__ == "__main__":
    command()
