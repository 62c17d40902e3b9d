"""How verbs take what is typed: words, then overrides (key=value), then options; and their help.

All verbs take overrides: of what Hydra composes, or, where a verb computes nothing, only of where
things lie (artifacts=, results=).
"""

import argparse
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from factsweep.operators.errors import InputError
from factsweep.operators.wording import listed, suggestion

PLACES = ("artifacts", "results")
ENCODED = "the overrides are percent-encoded, as launch writes them where shells read"
_OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w.@/]*=|~\w")
_WIDTH = 80
_SHOWN = 24  # choices of a group in a help text
_FORMER = {"--store": "artifacts"}  # an option of earlier versions
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
            missing = listed(each.upper() for each in self.words[len(words) :])
            raise InputError(f"{verb} needs {missing}; {see}.")
        if len(words) > len(self.words) and self.rest is None:
            more = words[len(self.words)]
            meant = suggestion(more, self.known())
            raise InputError(f"{verb} cannot take {more!r}: it is no key=value; {see}.{meant}")

    def _check_keys(self, overrides: Sequence[str], verb: str) -> None:
        for key in (each.partition("=")[0] for each in overrides):
            if key not in (known := self.known()):
                raise InputError(
                    f"{verb} cannot take {key}=; it takes {listed(f'{each}=' for each in known)}."
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
        return listed(f"{n.upper()}{of_words[n]}" if n in of_words else n for n in given)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse, with the choice that was probably meant."""
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            meant = suggestion(str(value), known).strip().removeprefix("Did you mean ")
            what = action.metavar or action.dest
            more = f"(did you mean {meant})" if meant else f"among {listed(known)}"
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
    from factsweep.pipeline.config.compose import composed

    given = [each for each in asked.overrides if each.partition("=")[0] in PLACES]
    found = composed(given)
    return {name: str(found[name]) for name in PLACES}


def others(asked: argparse.Namespace) -> list[str]:
    """The overrides that do not say where things lie."""
    return [each for each in asked.overrides if each.partition("=")[0] not in PLACES]


def _help_of(takes: Takes) -> Iterator[str]:
    if takes.keys is not None:
        yield from _wrapped("keys:", (f"{each}=" for each in takes.known()))
        return
    from factsweep.pipeline.config.compose import composed, keys
    from factsweep.pipeline.config.folders import files, groups

    values = composed([])
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
