"""Names that become names of files and folders: which are fit, and which fall together."""

import unicodedata
from collections.abc import Iterable

import polars as pl

from factsweep.operators.errors import InputError

_SEPARATORS = "/\\:"
_TAKEN = ("baselines", "compare", "report")  # beside runs, in a folder of results
_BETWEEN = "to"  # between two runs, in a folder of comparisons
_LONGEST = 120  # bytes: a file's name has 255, and more is written behind it


def fault(name: str) -> str | None:
    """What is wrong with a name; null: nothing.

    >>> [fault(each) for each in ("P36", "place of birth", "日本", "../x", ".P36", "P36 ", "")]
    [None, None, None, "holds '/'", "starts with '.'", 'begins or ends with a blank', 'is empty']
    """
    if not name.strip():
        return "is empty"
    unfit = next((c for c in name if c in _SEPARATORS or not _is_seen(c)), None)
    if unfit is not None:
        return f"holds {unfit!r}" if _is_seen(unfit) else f"holds {unfit!a}, which nobody sees"
    if name.startswith("."):
        return "starts with '.'"
    if name != name.strip():
        return "begins or ends with a blank"
    if len(name.encode()) > _LONGEST:
        return f"is longer than {_LONGEST} bytes"
    return None


def _is_seen(character: str) -> bool:
    """Whether a character leaves a trace: no control, format, surrogate or unassigned one."""
    category = unicodedata.category(character)
    return not category.startswith("C") and category not in ("Zl", "Zp")


def folded(name: str) -> str:
    """What a name is to a file system that knows neither case nor ways to write an accent.

    >>> folded("P36") == folded("p36"), folded("Caf\u00e9") == folded("Cafe\u0301")
    (True, True)
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def check(name: str, what: str) -> None:
    """Refuse a name that is not fit.

    Raises:
        InputError: it says what is wrong; `what` is what the message calls the name.
    """
    if (problem := fault(name)) is not None:
        raise InputError(f"{what} {shown(name)} {problem}; rename it.")


def check_relation(relation_id: str) -> None:
    """Refuse an id of a relation that is not fit: in shards and pairs a dot ends it.

    Raises:
        InputError: it says what is wrong.
    """
    check(relation_id, "the relation")
    if "." in relation_id:
        raise InputError(f"the relation {shown(relation_id)} holds '.'; rename it.")


def check_run(name: str) -> None:
    """Refuse a name of a run that is not fit; a night's has the night's before a slash.

    Raises:
        InputError: it says what is wrong.
    """
    for part in name.split("/"):
        if (problem := fault(part)) is not None:
            raise InputError(f"run_name={shown(name)}: {shown(part)} {problem}; give another.")
    parts = folded(name).split("/")
    if parts[0] in _TAKEN or _BETWEEN in parts:
        raise InputError(f"run_name={shown(name)} is a folder of factsweep's own; give another.")


def compared(first: str, second: str) -> str:
    """The folder in which two runs are compared: another for any two others.

    >>> compared("gpt2", "night-2026-11-01/gpt2-mini")
    'gpt2/to/night-2026-11-01/gpt2-mini'
    """
    return f"{first}/{_BETWEEN}/{second}"


def check_apart(names: Iterable[str], what: str) -> None:
    """Refuse names that some file system takes for one another.

    Raises:
        InputError: it names two of them.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(folded(name), name)
        if other != name:
            raise InputError(
                f"{what} {shown(other)} and {shown(name)} differ only in case or in how an accent "
                "is written, and some file systems take them for one; rename one of them."
            )


def check_ids(ids: pl.Series, what: str) -> None:
    """Refuse ids that stand twice, are empty, or hold a character that nobody sees.

    Raises:
        InputError: it names the first.
    """
    twice = ids.filter(ids.is_duplicated())
    if not twice.is_empty():
        raise InputError(f"{what} {shown(twice[0])} stands twice; leave one out.")
    unfit = ids.filter(ids.str.contains(r"^\s*$|[\x00-\x1f\x7f]|^.{1001}"))
    if not unfit.is_empty():
        raise InputError(
            f"{what} {shown(unfit[0])} is empty, longer than 1,000 characters, or holds a control "
            "character; rename it."
        )


def shown(name: str) -> str:
    """A name as messages have it: in quotes, cut short.

    >>> shown("a" * 99)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'"
    """
    return repr(name if len(name) <= 40 else f"{name[:40]}…")
