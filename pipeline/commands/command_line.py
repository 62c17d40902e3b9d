"""The command line: a verb, then words and overrides (key=value), then options."""

import argparse
import errno
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib import metadata

import argcomplete

from factsweep.operators.errors import FactsweepError, InputError, StoppedError, reason
from factsweep.pipeline.commands import artifacts, build, compare, data, run, study
from factsweep.pipeline.commands.arguments import Parser, late
from factsweep.pipeline.config import folders
from factsweep.pipeline.machine import logs, secrets
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.machine.streams import OutputError

_VERBS = (run, study, compare, build, data, artifacts)
_GROUPS = {
    "measure": (
        *("doctor", "run", "study", "launch", "plan", "status", "prefetch", "prompts", "score"),
    ),
    "read what was measured": ("compare", "report", "export"),
    "every night": ("nightly", "baseline"),
    "what is stored": ("artifacts", "prune", "verify", "why"),
    "data and models": ("catalog", "describe", "build", "model"),
}
_CODES = """\
exit codes:
  0    done
  1    the run failed
  2    bad input, explained in one sentence
  3    a regression, of nightly and compare --gate
  4    not enough evidence, of the same
  75   the store does not answer for now: run again later; Slurm and KubeRay do
  130  stopped by Ctrl-C; the next run resumes

completion, in ~/.bashrc or ~/.zshrc:
  eval "$(register-python-argcomplete factsweep)"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 bad input, 3 or 4 of a gate."""
    logs.to_stderr()
    try:
        asked = _parsed(arguments)
        code = int(asked.run(asked))
        sys.stdout.flush()
        return code
    except FactsweepError as error:
        _print_sentence(str(error), error)
        return error.exit_code
    except OSError as error:  # of the machine or the network, which no code of ours foresaw
        if isinstance(error, OutputError) and error.errno == errno.EPIPE:
            return 0  # the reader, `head` say, has seen enough
        _print_sentence(_told(error), error)
        return InputError.exit_code
    except KeyboardInterrupt as error:
        _print_sentence("stopped; the next run resumes from what is published.", error)
        return StoppedError.exit_code
    except Exception:  # a fault of ours; its traceback may quote what a library was given
        print(secrets.hidden_traceback(), file=sys.stderr)
        return 1


def _print_sentence(text: str, error: BaseException) -> None:
    """Print what went wrong, and the notes of the error: where things lie."""
    print(f"factsweep: {_printable(secrets.hidden(text))}", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        print(f"  {_printable(secrets.hidden(note))}", file=sys.stderr)


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
    argcomplete.autocomplete(parser, always_complete_options="long")
    asked, more = parser.parse_known_args(arguments)
    if asked.verb is None:
        parser.print_help(sys.stderr)
        parser.exit(InputError.exit_code)
    late(asked.command, asked, more)
    if asked.config_dir is not None:
        os.environ[folders.VARIABLE] = asked.config_dir
    if getattr(asked, "percent_encoded", False):
        from factsweep.pipeline.cluster import order

        asked.words = order.decode_overrides(asked.words)
    if asked.command.takes is not None:
        asked.command.takes.fill(asked, asked.command.verb)
    return asked


def _parser() -> Parser:
    parser = _Command(
        prog="factsweep",
        description="Facts × templates × a model → answers → tables.",
        usage="factsweep VERB [key=value…] [options]",
        epilog=_CODES,
        examples=[
            "factsweep run sweep=demo",
            "factsweep plan model=gpt2 benchmark=myriadlama prompt=zero-shot",
            "factsweep run --help",
        ],
    )
    verbs = parser.add_subparsers(
        dest="verb", metavar="verb", prog="factsweep", help=argparse.SUPPRESS, parser_class=Parser
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    for module in _VERBS:
        module.add(verbs)
    own = f"a folder with models, data sets, … of your own; default {folders.OWN}/, if it exists"
    for verb in verbs.choices.values():
        verb.set_defaults(command=verb, main=main)  # `study` has other verbs do their work
        verb.add_argument("--config-dir", metavar="DIR", help=own)
    parser.about = {name: verb.description or "" for name, verb in verbs.choices.items()}
    return parser


class _Command(Parser):
    """The parser of the command; its help has the verbs in groups."""

    about: Mapping[str, str] = {}

    def format_help(self) -> str:
        lines = [f"{self.format_usage()}\n{self.description}\n"]
        for title, verbs in _GROUPS.items():
            lines += [f"{title}:", *(self._line(verb) for verb in verbs), ""]
        lines += ["options:", "  -h, --help, --version; each verb has its own --help", ""]
        lines += ["examples:", *(f"  {each}" for each in self._examples), "", str(self.epilog)]
        return "\n".join(lines)

    def _line(self, verb: str) -> str:
        first = self.about[verb].partition("\n\n")[0]
        return textwrap.fill(
            first, 80, initial_indent=f"    {verb:10} ", subsequent_indent=" " * 15
        )


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        found = commit()
        print(f"factsweep {metadata.version('factsweep')}{f' (commit {found})' if found else ''}")
        parser.exit()
