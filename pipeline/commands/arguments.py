"""How verbs take what is typed: words, then overrides (key=value), then options; and their help.

All verbs take overrides: of what Hydra composes, or, where a verb computes nothing, only of where
things lie (artifacts=, results=). What is printed fits the terminal: wide Markdown tables wrap, or
fall apart into several.
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
_SHOWN = 24  # choices of a group in a help text
_FORMER = {"--store": "artifacts"}  # an option of earlier versions
Cells = Sequence[Sequence[str]]
_EDGE, _BETWEEN = 4, 3  # "| " and " |"; " | "
# An interval is one word: its ends stay in one line.
_ENDS, _GLUE = re.compile(r"(?<=\d) to (?=[-+]?\.?\d)"), "\ue000"
_LONG = 24  # a longer word, such as the name of a run, may go on in the next line
Keys = Sequence[str] | Callable[[], Sequence[str]] | None


@dataclass(frozen=True)
class Takes:
    """What a verb takes: words by name, any number of one more, and overrides."""

    words: Sequence[str]
    rest: str | None
    keys: Keys  # null: all that Hydra composes
    group: str  # may stand before a key, as in messages

    def known(self) -> Sequence[str]:
        """The keys of its overrides."""
        if self.keys is None:
            from factsweep.pipeline.config.compose import keys

            return keys()
        return self.keys() if callable(self.keys) else self.keys

    def fill(self, asked: argparse.Namespace, verb: str) -> None:
        """Sort what was typed: each word under its name, the rest, `overrides`.

        Raises:
            InputError: a word or key too many, or one that is missing.
        """
        given: list[str] = asked.words
        words = [each for each in given if not _OVERRIDE.match(each)]
        overrides = [each for each in given if _OVERRIDE.match(each)]
        asked.overrides = [each.removeprefix(self.group) for each in overrides]
        self._check(words, verb)
        for name, word in zip(self.words, words, strict=False):
            setattr(asked, name, word)
        if self.rest is not None:
            setattr(asked, self.rest, words[len(self.words) :])
        if self.keys is not None:
            self._check_keys(asked.overrides, verb)

    def _check(self, words: Sequence[str], verb: str) -> None:
        see = f"see factsweep {verb} --help"
        if len(words) < len(self.words):
            missing = join_list(each.upper() for each in self.words[len(words) :])
            raise InputError(f"{verb} needs {missing}; {see}.")
        if len(words) > len(self.words) and self.rest is None:
            more = words[len(self.words)]
            meant = suggestion(more, self.known())
            raise InputError(f"{verb} cannot take {more!r}: it is no key=value; {see}.{meant}")

    def _check_keys(self, overrides: Sequence[str], verb: str) -> None:
        for key in (each.partition("=")[0] for each in overrides):
            if key not in (known := self.known()):
                raise InputError(
                    f"{verb} cannot take {key}=; "
                    f"it takes {join_list(f'{name}=' for name in known)}."
                    f"{suggestion(key, known)}"
                )


class Parser(argparse.ArgumentParser):
    """The parser of the command, or of a verb: refuses in one sentence, and shows examples."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)
        self.takes: Takes | None = None
        self._examples = examples

    @property
    def verb(self) -> str:
        """The verb, with its action if it has one."""
        return self.prog.removeprefix("factsweep ")

    def take(
        self,
        *words: str,
        rest: str | None = None,
        keys: Keys = PLACES,
        group: str = "",
        about: str = "",
        run: Callable[[argparse.Namespace], int],
    ) -> None:
        """Take words of these names, any of `rest`, and overrides, in any order; then `run`."""
        self.takes = Takes(words, rest, keys, group)
        action = self.add_argument("words", nargs="*", help=argparse.SUPPRESS)
        action.completer = self._completed  # type: ignore[attr-defined]
        self.set_defaults(command=self, run=run)
        shown = [*(each.upper() for each in words), *([f"[{rest.upper()}…]"] if rest else [])]
        self.usage = " ".join(["%(prog)s", *shown, "[key=value…]", "[options]"])
        self.description = "\n\n".join(
            textwrap.fill(each, _WIDTH - 2) for each in (self.description or "", about) if each
        )

    def flag(self, name: str, text: str) -> None:
        """Take an option that is on or off."""
        self.option(name, text, action="store_true")

    def option(self, name: str, text: str, **more: Any) -> None:
        """Take an option; `more` is argparse's."""
        self.add_argument(name, help=text, **more)

    def _completed(self, prefix: str, **_: object) -> list[str]:
        """What may stand for the word that is being typed, for a shell."""
        takes = self.takes
        key, equals = prefix.partition("=")[:2]
        if takes is None:
            return []
        if not equals:
            runs = map(str, Path("results").glob("*/run.json")) if takes.words or takes.rest else ()
            return [*(each.split("/")[1] for each in runs), *(f"{key}=" for key in takes.known())]
        from factsweep.pipeline.config.compose import choices
        from factsweep.pipeline.config.folders import groups

        return [f"{key}={each}" for each in choices(key)] if key in groups() else []

    def format_help(self) -> str:
        """The help, with the keys that the verb takes, and examples."""
        parts = [super().format_help()]
        if self.takes is not None:
            parts.append("\n".join(_help_of(self.takes)))
        if self._examples:
            parts.append("\n".join(["examples:", *(f"  {each}" for each in self._examples)]))
        return "\n\n".join(part.rstrip() for part in parts) + "\n"

    def error(self, message: str) -> NoReturn:
        """End with one sentence and exit code 2."""
        message = re.sub(r"^argument [^:]*: ", "", message)
        if lacking := re.fullmatch(r"the following arguments are required: (.+)", message):
            message = f"{self.verb} needs {self._described(lacking[1])}"
        self.exit(2, f"factsweep: {message}; see {self.prog} --help.\n")

    def _described(self, names: str) -> str:
        """Arguments that are missing, each with what it may be."""
        of_words = {
            each.metavar or each.dest: f" ({', '.join(each.choices)})" if each.choices else ""
            for each in self._actions
        }
        given = names.split(", ")  # options, or words with their choices
        return join_list(f"{n.upper()}{of_words[n]}" if n in of_words else n for n in given)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse, with the choice that was probably meant."""
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            meant = suggestion(str(value), known).strip().removeprefix("Did you mean ")
            what = action.metavar or action.dest
            more = f"(did you mean {meant})" if meant else f"among {join_list(known)}"
            raise argparse.ArgumentError(None, f"there is no {what} {value!r} {more}")


def late(parser: Parser, asked: argparse.Namespace, words: Sequence[str]) -> None:
    """Add words that argparse left over, since they stand behind an option.

    Raises:
        InputError: one is an option that the verb does not have.
    """
    for word in words:
        if word.startswith("-") and word != "-":
            raise InputError(_unknown(parser, word))
    if words and "words" not in asked:
        key, is_pair, value = words[0].partition("=")
        meant = f" Here it is an option, if there is one: --{key} {value}" if is_pair else ""
        raise InputError(
            f"{parser.verb} cannot take {words[0]!r}; see {parser.prog} --help.{meant}"
        )
    if words:
        asked.words = [*asked.words, *words]


def _unknown(parser: Parser, option: str) -> str:
    """That a verb has no such option; keys are no options."""
    name = option.partition("=")[0]
    key = _FORMER.get(name, name.lstrip("-").replace("-", "_"))
    if parser.takes is not None and key in parser.takes.known():
        return f"{parser.verb} has no {name}; write {key}=…, as for every verb."
    known = [each for action in parser._actions for each in action.option_strings]
    see = f"see {parser.prog} --help"
    return f"{parser.verb} has no option {name}; {see}.{suggestion(name, known)}"


def places(asked: argparse.Namespace) -> dict[str, str]:
    """Where artifacts and results lie, by what was typed and conf/config.yaml.

    Raises:
        InputError: a value cannot be read.
    """
    from factsweep.pipeline.config.compose import compose_config

    given = [each for each in asked.overrides if each.partition("=")[0] in PLACES]
    found = compose_config(given)
    return {name: str(found[name]) for name in PLACES}


def others(asked: argparse.Namespace) -> list[str]:
    """The overrides that do not say where things lie."""
    return [each for each in asked.overrides if each.partition("=")[0] not in PLACES]


def _help_of(takes: Takes) -> Iterator[str]:
    if takes.keys is not None:
        yield from _wrapped("keys:", (f"{each}=" for each in takes.known()))
        return
    from factsweep.pipeline.config.compose import compose_config, keys
    from factsweep.pipeline.config.folders import files, groups

    values = compose_config([])
    yield "groups: group=choice; your own go into factsweep.d/<group>/"
    for group in (each for each in groups() if each in values):
        names = [*files(group)]
        more = [f"… {len(names)} in all: conf/{group}/"] if len(names) > _SHOWN else []
        yield from _wrapped(f"  {group}:", [*names[:_SHOWN], *more])
    yield ""
    yield from _wrapped("keys:", (each for each in keys() if each not in groups()))


def _wrapped(title: str, names: Iterable[str]) -> Iterator[str]:
    indent = " " * (len(title) - len(title.lstrip()) + 4)
    text = f"{title} {'  '.join(each.replace(' ', chr(160)) for each in names)}"
    lines = textwrap.wrap(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    yield from (line.replace(chr(160), " ") for line in lines)


def shown(text: str) -> str:
    """A text for this terminal ($COLUMNS, else 80): its Markdown tables are made to fit."""
    width = shutil.get_terminal_size(fallback=(80, 24)).columns
    return "\n".join(_lines(text, width))


def _lines(text: str, width: int) -> Iterator[str]:
    for is_table, group in groupby(text.split("\n"), lambda line: line.startswith("|")):
        lines = [*group]
        if not is_table or max(map(len, lines)) <= width:
            yield from lines
            continue
        glued = (_ENDS.sub(f"{_GLUE}to{_GLUE}", line) for line in lines)
        cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in glued]
        # The head, and the rows but that of dashes below it.
        rows = [cells[0], *(r for r in cells[1:] if not all(set(c) <= set("-:") for c in r))]
        for number, columns in enumerate(_parts(rows, width)):
            if number:
                yield ""
            yield from _table([[row[each] for each in columns] for row in rows], width)


def _parts(cells: Cells, width: int) -> Iterator[list[int]]:
    """The columns of each table: as many as fit, wrapped between words; all name their rows."""
    first, *others = (_longest_word(column) for column in zip(*cells, strict=True))
    needs = [first, *(min(each, _LONG) for each in others)]
    names = _names(cells, needs, width)
    part = names
    for column in range(len(names), len(needs)):
        longer = [*part, column]
        wide = _EDGE + _BETWEEN * len(part) + sum(needs[i] for i in longer)
        if len(part) > len(names) and wide > width:
            yield part
            longer = [*names, column]
        part = longer
    yield part


def _names(cells: Cells, needs: Sequence[int], width: int) -> list[int]:
    """The first columns that together name each row; only the first, if they take half the room."""
    for n in range(1, len(needs)):
        if len({tuple(row[:n]) for row in cells}) == len(cells):
            names = [*range(n)]
            return names if sum(needs[:n]) + _BETWEEN * n <= width // 2 else [0]
    return [0]


def _longest_word(cells: Sequence[str]) -> int:
    return max(len(word) for cell in cells for word in (cell.split() or [" "]))


def _widths(columns: Cells, width: int) -> list[int]:
    """Each column's width: the widest give way first, down to their longest words, or into them."""
    room = width - _EDGE - _BETWEEN * (len(columns) - 1)
    words = [min(_longest_word(column), room // 2) for column in columns]
    widths = [max(1, *map(len, column)) for column in columns]
    for least in (words, [words[0], *(min(each, _LONG) for each in words[1:])]):
        while sum(widths) > room and widths != least:
            spare = [w if w > at_least else 0 for w, at_least in zip(widths, least, strict=True)]
            widths[spare.index(max(spare))] -= 1
    return widths


def _table(cells: Cells, width: int) -> Iterator[str]:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.MARKDOWN)
    columns = [*zip(*cells, strict=True)]
    for column, wide in zip(columns, _widths(columns, width), strict=True):
        table.add_column(Text(column[0]), width=wide, overflow="fold")  # a name is typed whole
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as printed:
        console.print(table)
    printed_lines = printed.get().replace(_GLUE, " ").split("\n")
    yield from (line.rstrip() for line in printed_lines if line.startswith("|"))
