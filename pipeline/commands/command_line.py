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
from factsweep.pipeline.commands import (
    artifacts,
    build,
    compare,
    data,
    judge,
    rehearsal,
    run,
    study,
)
from factsweep.pipeline.commands.arguments import Parser, add_words
from factsweep.pipeline.config import folders
from factsweep.pipeline.machine import logs, secrets, urls
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.machine.streams import OutputError

_VERBS = (run, judge, rehearsal, study, compare, build, data, artifacts)
_GROUPS = {
    "measure": (
        *("doctor", "run", "study", "launch", "plan", "rehearse", "status"),
        *("prefetch", "prompts", "score", "judge"),
    ),
    "read what was measured": ("compare", "report", "export", "published"),
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
  75   the store, or the model's server, does not answer for now: run again
       later; Slurm and KubeRay do
  130  stopped by Ctrl-C or SIGTERM; the next run resumes

completion, in ~/.bashrc or ~/.zshrc:
  eval "$(register-python-argcomplete factsweep)"
"""

_FIXES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "check its rights and its owner"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room on its disk"),
    errno.EROFS: "choose a folder that may be written",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 done, 1 failed, 2 bad input, 3 or 4 of a gate."""
    logs.log_to_stderr()
    try:
        urls.check_variables()
        args = _parse_arguments(arguments)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except FactsweepError as error:
        _print_error(str(error), error)
        return error.exit_code
    except OSError as error:  # of the machine or the network
        if isinstance(error, OutputError) and error.errno == errno.EPIPE:
            return 0  # the reader, such as `head`, closed the pipe
        prefix = f"{error.filename}: " if error.filename else ""
        place = "the path and its disk" if error.filename else "the disk and the network"
        fix = _FIXES.get(error.errno or 0, f"check {place}")
        _print_error(f"{prefix}{error.strerror or reason(error)}; {fix}, then run again.", error)
        return InputError.exit_code
    except KeyboardInterrupt as error:
        _print_error(f"{reason(error)}; the next run resumes from what is published.", error)
        return StoppedError.exit_code
    except Exception:  # a bug; its traceback may quote arguments of a library
        print(secrets.hidden_traceback(), file=sys.stderr)
        return 1


def _print_error(text: str, error: BaseException) -> None:
    logs.say(f"factsweep: {text.strip()}")
    for note in getattr(error, "__notes__", ()):
        logs.say(f"  {note.strip()}")


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; argparse takes no further words after an option, so they are added here."""
    parser = _build_parser()
    argcomplete.autocomplete(parser, always_complete_options="long")
    args, later_words = parser.parse_known_args(arguments)
    if args.verb is None:
        parser.print_help(sys.stderr)
        parser.exit(InputError.exit_code)
    add_words(args.command, args, later_words)
    if args.config_dir is not None:
        os.environ[folders.VARIABLE] = args.config_dir
    if getattr(args, "percent_encoded", False):
        from factsweep.pipeline.cluster import job_request

        args.words = job_request.decode_overrides(args.words)
    if args.command.signature is not None:
        args.command.signature.sort_arguments(args, args.command.verb)
    return args


def _build_parser() -> Parser:
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
    own_dir = (
        f"a folder with models, data sets, … of your own; default {folders.OWN}/, if it exists"
    )
    for verb in verbs.choices.values():
        verb.set_defaults(command=verb, main=main)  # `study` has other verbs do their work
        verb.add_argument("--config-dir", metavar="DIR", help=own_dir)
    parser.about = {name: verb.description or "" for name, verb in verbs.choices.items()}
    return parser


class _Command(Parser):
    """The parser of the command; its help has the verbs in groups."""

    about: Mapping[str, str] = {}

    def format_help(self) -> str:
        lines = [f"{self.format_usage()}\n{self.description}\n"]
        for title, verbs in _GROUPS.items():
            lines.append(f"{title}:")
            for verb in verbs:
                text = self.about[verb].partition("\n\n")[0]
                wrapped = textwrap.wrap(text, 65)
                lines.append(f"    {verb:10} " + ("\n" + " " * 15).join(wrapped))
            lines.append("")
        lines += ["options:", "  -h, --help, --version; each verb has its own --help", ""]
        lines += ["examples:", *(f"  {line}" for line in self._examples), "", str(self.epilog)]
        return "\n".join(lines)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        revision = f" (commit {sha})" if (sha := commit()) else ""
        print(f"factsweep {metadata.version('factsweep')}{revision}")
        parser.exit()
