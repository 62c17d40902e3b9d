"""Checks every code block of a page: `make docs` fails for one that could not be used as it stands.

Of a block of commands each `factsweep` line is parsed and its overrides are composed, without
running it, and each `make` line must name a target. Python compiles; YAML and JSON load.
"""

import contextlib
import io
import json
import os
import re
import shlex
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands import command_line
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import ExpandedRun, compose_config, expand_runs

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\w*)[ ]?([^\n]*)\n(.*?)^\1```$", re.M | re.S)
UNFENCED = re.compile(r"^ {4}(?:\$ )?((?:factsweep|make) .*)", re.M)
TARGET = re.compile(r"^([a-z-]+):", re.M)
OWN = re.compile(r"(?:conf|factsweep\.d)/((?!data_catalog)\w+/[\w-]+\.yaml)$")
PINNED = re.compile(r"> factsweep\.d/(model/[\w-]+\.yaml)$", re.M)
ELLIPSIS = "…"  # in a command: and so on
BASE = "llama3-8b"  # for a model that a command of the page saves
SEVERAL = ("judge", "prefetch", "study")  # verbs that take several values of an override


def faults(markdown: str) -> Iterator[str]:
    """The errors in the blocks of a page, one sentence each."""
    blocks = [(fence[2], fence[3], textwrap.dedent(fence[4])) for fence in FENCE.finditer(markdown)]
    with tempfile.TemporaryDirectory() as folder:
        write_own(blocks, Path(folder))
        os.environ[folders.VARIABLE] = folder
        for language, _, text in blocks:
            if language in CHECKS:
                yield from CHECKS[language](text)
            else:
                yield f"a block of {language or 'no language'}; known are {', '.join(CHECKS)}"
    for command in UNFENCED.findall(FENCE.sub("", markdown)):
        yield f"{command}: a command that is in no ```bash block"


def titled(markdown: str) -> str:
    """The page, each block that is a file with the file's name as its title."""
    return FENCE.sub(_titled, markdown)


def _titled(block: re.Match[str]) -> str:
    indent, language, file, text = block.groups()
    title = f' title="{file}"' if file else ""
    return f"{indent}```{language}{title}\n{text}{indent}```"


def write_own(blocks: list[tuple[str, str, str]], folder: Path) -> None:
    """The configuration that the blocks of a page write, so that its commands may name it."""
    files = {match[1]: text for _, file, text in blocks if (match := OWN.match(file))}
    for _, _, text in blocks:
        files |= dict.fromkeys(PINNED.findall(text), f"defaults: [{BASE}, _self_]\n")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def in_commands(text: str) -> Iterator[str]:
    """The `factsweep` and `make` lines that could not be typed."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            commands = list(split(line))
        except ValueError as error:  # a quote that is not closed
            yield f"{line}: {error}"
            continue
        for program, *words in commands:
            if program == "make":
                yield from in_make(words)
            elif Path(program).name == "factsweep":
                yield from in_factsweep(words)


def in_console(text: str) -> Iterator[str]:
    """The same of a block that shows output, too: commands follow a `$`."""
    lines = text.replace("\\\n", " ").splitlines()
    yield from in_commands("\n".join(line[2:] for line in lines if line.startswith("$ ")))


def split(line: str) -> Iterator[list[str]]:
    """The commands of a line of shell: program and words, without variables and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;<>"):
            if words:
                yield words
            words = []
        elif words or not re.match(r"[A-Z_]+=", word):
            words.append(word)


def in_make(words: list[str]) -> Iterator[str]:
    """The targets that the Makefile lacks."""
    targets = TARGET.findall((ROOT / "Makefile").read_text())
    for word in words:
        if "=" not in word and word not in targets:
            yield f"make {word}: the Makefile has no such target"


def in_factsweep(words: list[str]) -> Iterator[str]:
    """Why the command line does not take these words."""
    output = io.StringIO()
    words = [word for word in words if word != ELLIPSIS]
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            args = command_line._parse_arguments(words)
            if args.command.signature is not None and args.command.signature.keys is None:
                overrides = [override for override in args.overrides if "=glob(" not in override]
                for run in (
                    expand_runs(overrides) if args.verb in SEVERAL else [ExpandedRun(overrides, {})]
                ):
                    compose_config(run.overrides)
    except InputError as error:
        yield f"factsweep {' '.join(words)}: {error}"
    except SystemExit as stopped:
        if stopped.code:
            yield output.getvalue().strip()


def in_python(text: str) -> Iterator[str]:
    """Why it does not compile."""
    try:
        compile(text, "block", "exec")
    except SyntaxError as error:
        yield f"line {error.lineno}: {error.msg}"


def in_yaml(text: str) -> Iterator[str]:
    """Why it cannot be loaded."""
    try:
        list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        yield str(error)


def in_json(text: str) -> Iterator[str]:
    """Why it cannot be loaded."""
    try:
        json.loads(text)
    except ValueError as error:
        yield str(error)


def nothing(_text: str) -> Iterator[str]:
    """No errors: the block is not code."""
    yield from ()


CHECKS: Mapping[str, Callable[[str], Iterator[str]]] = {
    "bash": in_commands,
    "sh": in_commands,  # of docs/adding.md, which a test runs
    "console": in_console,
    "python": in_python,
    "yaml": in_yaml,
    "json": in_json,
    "diff": nothing,
    "text": nothing,
}
