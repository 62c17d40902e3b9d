"""How verbs read their arguments: words, then overrides (key=value), then options; and their help.

All verbs take overrides: of the composed configuration, or, where a verb computes nothing, only of
the places (artifacts=, results=).
"""

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from factsweep.operators.errors import InputError
from factsweep.operators.wording import join_list, suggestion

PLACES = ("artifacts", "results")
ENCODED = "the overrides are percent-encoded, as launch writes them where shells read"
_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w.@/]*=|~\w")
_WIDTH = 80
_MAX_CHOICES = 24  # of a group in a help text
_MAX_WORD = 24  # a longer word, such as the name of a run, may continue on the next line
# An interval is one word: its ends stay on one line.
_ENDS, _GLUE = re.compile(r"(?<=\d) to (?=[-+]?\.?\d)"), "\ue000"


def is_override(word: str) -> bool:
    """Whether an argument is key=value, and not the name of something."""
    return _OVERRIDE.match(word) is not None


Keys = Sequence[str] | Callable[[], Sequence[str]] | None


@dataclass(frozen=True)
class Signature:
    """The arguments of a verb: words by name, any number of one more, and overrides."""

    words: Sequence[str]
    rest: str | None
    keys: Keys  # null: all keys of the composed configuration
    group: str  # may precede a key, as in messages

    def known_keys(self) -> Sequence[str]:
        """The keys of its overrides."""
        if self.keys is None:
            from factsweep.pipeline.config.compose import keys

            return keys()
        return self.keys() if callable(self.keys) else self.keys

    def sort_arguments(self, args: argparse.Namespace, verb: str) -> None:
        """Sort the arguments: each word under its name, the rest, `overrides`.

        Raises:
            InputError: a word or key is unknown or missing.
        """
        words = [word for word in args.words if not is_override(word)]
        overrides = [word for word in args.words if is_override(word)]
        args.overrides = [override.removeprefix(self.group) for override in overrides]
        see = f"see factsweep {verb} --help"
        if len(words) < len(self.words):
            missing = join_list(name.upper() for name in self.words[len(words) :])
            raise InputError(f"{verb} needs {missing}; {see}.")
        if len(words) > len(self.words) and self.rest is None:
            extra = words[len(self.words)]
            hint = suggestion(extra, self.known_keys())
            raise InputError(f"{verb} cannot take {extra!r}: it is no key=value; {see}.{hint}")
        for name, word in zip(self.words, words, strict=False):
            setattr(args, name, word)
        if self.rest is not None:
            setattr(args, self.rest, words[len(self.words) :])
        if self.keys is None:  # Hydra refuses unknown ones
            return
        known_keys = self.known_keys()
        for key in (override.partition("=")[0] for override in args.overrides):
            if key not in known_keys:
                keys = join_list(f"{name}=" for name in known_keys)
                hint = suggestion(key, known_keys)
                raise InputError(f"{verb} cannot take {key}=; it takes {keys}.{hint}")


def _list_runs() -> list[str]:
    return [path.parent.name for path in Path("results").glob("*/run.json")]


class Parser(argparse.ArgumentParser):
    """The parser of the command, or of a verb: refuses in one sentence, and shows examples."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)
        self.signature: Signature | None = None
        self._examples = examples

    @property
    def verb(self) -> str:
        """The verb, with its action if it has one."""
        return self.prog.removeprefix("factsweep ")

    @property
    def arguments(self) -> Sequence[argparse.Action]:
        """Its arguments and options, in the order of the help."""
        return self._actions

    def take(
        self,
        *words: str,
        rest: str | None = None,
        keys: Keys = PLACES,
        group: str = "",
        about: str = "",
        run: Callable[[argparse.Namespace], int],
        known_words: Callable[[], Iterable[str]] = _list_runs,
    ) -> None:
        """Take words of these names, any of `rest`, and overrides, in any order; then `run`.

        A shell completes words among `known_words`.
        """
        self._known_words = known_words
        self.signature = Signature(words, rest, keys, group)
        action = self.add_argument("words", nargs="*", help=argparse.SUPPRESS)
        action.completer = self._complete_word  # type: ignore[attr-defined]
        self.set_defaults(command=self, run=run)
        names = [*(word.upper() for word in words), *([f"[{rest.upper()}…]"] if rest else [])]
        self.usage = " ".join(["%(prog)s", *names, "[key=value…]", "[options]"])
        self.description = "\n\n".join(
            textwrap.fill(text, _WIDTH - 2) for text in (self.description or "", about) if text
        )

    def flag(self, name: str, text: str) -> None:
        """Take an option that is on or off."""
        self.add_argument(name, help=text, action="store_true")

    def _complete_word(self, prefix: str, **_: object) -> list[str]:
        signature = self.signature
        key, equals = prefix.partition("=")[:2]
        if signature is None:
            return []
        if not equals:
            has_names = signature.words or signature.rest
            words = self._known_words() if has_names else ()
            return [*words, *(f"{name}=" for name in signature.known_keys())]
        from factsweep.pipeline.config.compose import choices
        from factsweep.pipeline.config.folders import groups

        return [f"{key}={choice}" for choice in choices(key)] if key in groups() else []

    def format_help(self) -> str:
        """The help, with the keys of the verb, and examples."""
        parts = [super().format_help()]
        if self.signature is not None:
            parts.append("\n".join(_describe_keys(self.signature)))
        if self._examples:
            parts.append("\n".join(["examples:", *(f"  {line}" for line in self._examples)]))
        return "\n\n".join(part.rstrip() for part in parts) + "\n"

    def error(self, message: str) -> NoReturn:
        """End with one sentence and exit code 2."""
        message = re.sub(r"^argument [^:]*: ", "", message)
        if match := re.fullmatch(r"the following arguments are required: (.+)", message):
            choices = {
                action.metavar or action.dest: f" ({', '.join(action.choices)})"
                if action.choices
                else ""
                for action in self._actions
            }
            names = match[1].split(", ")  # options, or words with their choices
            missing = (f"{n.upper()}{choices[n]}" if n in choices else n for n in names)
            message = f"{self.verb} needs {join_list(missing)}"
        self.exit(2, f"factsweep: {message}; see {self.prog} --help.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse, with the most similar choice."""
        if action.choices is not None and value not in action.choices:
            choices = list(map(str, action.choices))
            similar = suggestion(str(value), choices).strip().removeprefix("Did you mean ")
            hint = f"(did you mean {similar})" if similar else f"among {join_list(choices)}"
            name = action.dest if action.option_strings else action.metavar or action.dest
            raise argparse.ArgumentError(None, f"there is no {name} {value!r} {hint}")


def add_words(parser: Parser, args: argparse.Namespace, words: Sequence[str]) -> None:
    """Add words that argparse left over because they follow an option.

    Raises:
        InputError: one is an option that the verb does not have.
    """
    for word in words:
        if not word.startswith("-") or word == "-":
            continue
        name = word.partition("=")[0]
        key = name.lstrip("-").replace("-", "_")
        if parser.signature is not None and key in parser.signature.known_keys():
            raise InputError(f"{parser.verb} has no {name}; write {key}=…, as for every verb.")
        options = [option for action in parser._actions for option in action.option_strings]
        hint = suggestion(name, options)
        raise InputError(f"{parser.verb} has no option {name}; see {parser.prog} --help.{hint}")
    if words and "words" not in args:
        key, is_pair, value = words[0].partition("=")
        hint = f" Here it is an option, if there is one: --{key} {value}" if is_pair else ""
        raise InputError(f"{parser.verb} cannot take {words[0]!r}; see {parser.prog} --help.{hint}")
    if words:
        args.words = [*args.words, *words]


def places(args: argparse.Namespace) -> dict[str, str]:
    """The folders of artifacts and results, from the overrides and conf/config.yaml.

    Raises:
        InputError: a value cannot be read.
    """
    from factsweep.pipeline.config.compose import compose_config

    overrides = [o for o in args.overrides if o.partition("=")[0] in PLACES]
    config = compose_config(overrides)
    return {name: str(config[name]) for name in PLACES}


def other_overrides(args: argparse.Namespace) -> list[str]:
    """The overrides that are not places."""
    return [o for o in args.overrides if o.partition("=")[0] not in PLACES]


def _describe_keys(signature: Signature) -> Iterator[str]:
    if signature.keys is not None:
        yield from _wrap_names("keys:", (f"{key}=" for key in signature.known_keys()))
        return
    from factsweep.pipeline.config.compose import compose_config, keys
    from factsweep.pipeline.config.folders import files, groups

    config = compose_config([])
    yield "groups: group=choice; your own go into factsweep.d/<group>/"
    for group in (group for group in groups() if group in config):
        names = [*files(group)]
        cut = [f"… {len(names)} in all: conf/{group}/"] if len(names) > _MAX_CHOICES else []
        yield from _wrap_names(f"  {group}:", [*names[:_MAX_CHOICES], *cut])
    yield ""
    yield from _wrap_names("keys:", (key for key in keys() if key not in groups()))


def _wrap_names(title: str, names: Iterable[str]) -> Iterator[str]:
    indent = " " * (len(title) - len(title.lstrip()) + 4)
    text = f"{title} {'  '.join(name.replace(' ', chr(160)) for name in names)}"
    lines = textwrap.wrap(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    yield from (line.replace(chr(160), " ") for line in lines)


def fit_to_terminal(text: str) -> str:
    """A text for this terminal ($COLUMNS, else 80): Markdown tables wrap or split to fit."""
    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    lines = list[str]()
    for is_table, group in groupby(text.split("\n"), lambda line: line.startswith("|")):
        block = [*group]
        is_wide = is_table and max(map(len, block)) > width
        lines += _split_table(block, width) if is_wide else block
    return "\n".join(lines)


def _split_table(lines: Sequence[str], width: int) -> Iterator[str]:
    """The tables of as many columns as fit; the first columns, which name the rows, repeat."""
    glued = (_ENDS.sub(f"{_GLUE}to{_GLUE}", line) for line in lines)
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in glued]
    rows = [cells[0], *(r for r in cells[1:] if not all(set(c) <= set("-:") for c in r))]
    columns = [*zip(*rows, strict=True)]
    n_names = 1
    while len({tuple(row[:n_names]) for row in rows}) < len(rows) and n_names < len(columns) - 1:
        n_names += 1
    needs = [max(len(w) for cell in c for w in (cell.split() or [""])) for c in columns]
    needs = [needs[0], *(min(need, _MAX_WORD) for need in needs[1:])]
    if sum(needs[:n_names]) + 3 * n_names > width // 2:
        n_names = 1
    part = [*range(n_names)]
    for column in range(n_names, len(columns)):
        n_chars = 1 + sum(needs[i] + 3 for i in (*part, column))  # "| " and " "
        if len(part) > n_names and n_chars > width:
            yield from _format_columns([columns[i] for i in part], [needs[i] for i in part], width)
            yield ""
            part = [*range(n_names)]
        part.append(column)
    yield from _format_columns([columns[i] for i in part], [needs[i] for i in part], width)


def _format_columns(
    columns: Sequence[Sequence[str]], needs: Sequence[int], width: int
) -> Iterator[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widths = [max(1, *map(len, column)) for column in columns]
    room = width - 1 - 3 * len(columns)
    while sum(widths) > room:  # the widest column shrinks first, if possible to its longest word
        spare = [w * (w > need) for w, need in zip(widths, needs, strict=True)]
        widths[(spare if any(spare) else widths).index(max(spare) or max(widths))] -= 1
    table = Table(box=box.MARKDOWN)
    for column, column_width in zip(columns, widths, strict=True):
        table.add_column(Text(column[0]), width=column_width, overflow="fold")
    for row in [*zip(*columns, strict=True)][1:]:
        table.add_row(*map(Text, row))
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    printed = capture.get().replace(_GLUE, " ").split("\n")
    yield from (line.rstrip() for line in printed if line.startswith("|"))
