"""Checks of names that become names of files and folders."""

import unicodedata
from collections.abc import Iterable

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.wording import is_visible

_SEPARATORS = "/\\:"
_RESERVED = ("baselines", "compare", "report")  # folders of ours among those of runs
_BETWEEN = "to"  # between two runs, in a folder of comparisons
_LONGEST = 120  # bytes: a file's name has 255, and suffixes are appended


def fault(name: str) -> str | None:
    """The fault of a name; null: none.

    >>> [fault(name) for name in ("P36", "place of birth", "日本", "../x", ".P36", "P36 ", "")]
    [None, None, None, "holds '/'", "starts with '.'", 'begins or ends with a blank', 'is empty']
    """
    if not name.strip():
        return "is empty"
    for character in name:
        if not is_visible(character):
            return f"holds {character!a}, which is invisible"
        if character in _SEPARATORS:
            return f"holds {character!r}"
    if name.startswith("."):
        return "starts with '.'"
    if name != name.strip():
        return "begins or ends with a blank"
    if len(name.encode()) > _LONGEST:
        return f"is longer than {_LONGEST} bytes"
    return None


def fold_name(name: str) -> str:
    """A name as a file system has it that ignores case and the ways to write an accent.

    >>> fold_name("P36") == fold_name("p36"), fold_name("Caf\u00e9") == fold_name("Cafe\u0301")
    (True, True)
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def check(name: str, subject: str) -> None:
    """Refuse an unfit name of a subject.

    Raises:
        InputError: it has a fault.
    """
    if (problem := fault(name)) is not None:
        raise InputError(f"{subject} {quote(name)} {problem}; rename it.")


def check_relation(relation_id: str) -> None:
    """Refuse an unfit id of a relation: in names of shards and pairs a dot ends it.

    Raises:
        InputError: it has a fault or a dot.
    """
    check(relation_id, "the relation")
    if "." in relation_id:
        raise InputError(f"the relation {quote(relation_id)} holds '.'; rename it.")


def check_run(name: str) -> None:
    """Refuse an unfit name of a run; a slash separates the night's name in front.

    Raises:
        InputError: a part has a fault or is a folder of factsweep's own.
    """
    for part in name.split("/"):
        if (problem := fault(part)) is not None:
            raise InputError(f"run_name={quote(name)}: {quote(part)} {problem}; give another.")
    parts = fold_name(name).split("/")
    if parts[0] in _RESERVED or _BETWEEN in parts:
        raise InputError(f"run_name={quote(name)} is a folder of factsweep's own; give another.")


def comparison_folder(first: str, second: str) -> str:
    """The folder of the comparison of two runs.

    >>> comparison_folder("gpt2", "night-2026-11-01/gpt2-mini")
    'gpt2/to/night-2026-11-01/gpt2-mini'
    """
    return f"{first}/{_BETWEEN}/{second}"


def check_apart(names: Iterable[str], subject: str) -> None:
    """Refuse names that are equal to some file systems.

    Raises:
        InputError: two differ only in case or accents.
    """
    first_names: dict[str, str] = {}
    for name in names:
        first = first_names.setdefault(fold_name(name), name)
        if first != name:
            raise InputError(
                f"{subject} {quote(first)} and {quote(name)} differ only in case or in how an "
                "accent is written, and are one name to some file systems; rename one of them."
            )


def check_ids(ids: pl.Series, subject: str) -> None:
    """Refuse ids that occur twice, are empty or too long, or hold a control character.

    Raises:
        InputError: there is such an id.
    """
    duplicates = ids.filter(ids.is_duplicated())
    if not duplicates.is_empty():
        raise InputError(f"{subject} {quote(duplicates[0])} occurs twice; leave one out.")
    unfit = ids.filter(ids.str.contains(r"^\s*$|[\x00-\x1f\x7f]|^.{1001}"))
    if not unfit.is_empty():
        raise InputError(
            f"{subject} {quote(unfit[0])} is empty, longer than 1,000 characters, or holds a "
            "control character; rename it."
        )


def quote(name: str) -> str:
    """A name as messages have it: in quotes, cut short."""
    return repr(name if len(name) <= 40 else f"{name[:40]}…")
