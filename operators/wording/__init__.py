"""Counts, lists and names in messages."""

import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MOST = 24  # names in a sentence
_LINES, _WIDTH = 4, 100
_JOINERS = "\u200c\u200d"  # of Persian, Hindi and emojis
_MOST_SENTENCES = 8


def count(n: float, noun: str) -> str:
    """A number with its noun, in the plural unless it is one.

    >>> count(1, "problem"), count(0, "shard"), count(1200, "prompt"), count(2, "category")
    ('1 problem', '0 shards', '1,200 prompts', '2 categories')
    """
    ends = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,.0f} {noun if n == 1 else ends}"


def shorten(lines: Sequence[str]) -> str:
    """The first of some lines in a row, long ones cut, and the number of further ones.

    >>> shorten(["seed: 0 → 1"]), shorten([*"abcdef"]), shorten(["a" * 101]) == "a" * 99 + "…"
    ('seed: 0 → 1', 'a; b; c; d; 2 more', True)
    """
    cut = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…" for line in lines[:_LINES]]
    return "; ".join([*cut, *([f"{len(lines) - _LINES} more"] if len(lines) > _LINES else [])])


def join_sentences(sentences: Sequence[str]) -> str:
    """The first sentences in a row, each once, and the number of further ones.

    >>> join_sentences(["No a.", "No b.", "No a."]), join_sentences([f"{i}." for i in range(12)])
    ('No a. No b.', '0. 1. 2. 3. 4. 5. 6. 7. There are 4 more.')
    """
    different = list(dict.fromkeys(sentences))
    n_left = len(different) - _MOST_SENTENCES
    return " ".join([*different[:_MOST_SENTENCES], *[f"There are {n_left} more."] * (n_left > 0)])


def join_list(names: Iterable[str], last: str = "and") -> str:
    """Names in a row; "none" where there is none.

    >>> join_list(["a", "b", "c"]), join_list(["a", "b"], "or"), join_list([])
    ('a, b and c', 'a or b', 'none')
    """
    *first_names, last_name = [*names] or ["none"]
    return f"{', '.join(first_names)} {last} {last_name}" if first_names else last_name


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """A sentence with the candidate most similar to a misspelt name; empty: none is similar.

    >>> suggestion("seeed", ["seed", "model"])
    ' Did you mean seed?'
    """
    matches = get_close_matches(name, list(candidates), n=1)
    return f" Did you mean {matches[0]}?" if matches else ""


def is_visible(character: str) -> bool:
    """Whether a character is no control, bidi or other invisible character, and no line end."""
    category = unicodedata.category(character)
    return not category.startswith("C") and category not in ("Zl", "Zp")


def escape_invisible(text: str) -> str:
    r"""A text with invisible characters as Python writes them; line feeds, tabs and joiners stay.

    >>> print(escape_invisible("\x1b[31mred\u202e Oz"))
    \x1b[31mred\u202e Oz
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    kept_characters = f"\n\t{_JOINERS}"
    return "".join(c if is_visible(c) or c in kept_characters else repr(c)[1:-1] for c in text)


def name_servers(urls: Sequence[str]) -> str:
    """A server by its URL, or several of them; without any, the servers that a job starts.

    >>> name_servers(["http://a/v1"]), name_servers(["http://a/v1", "http://b/v1"])
    ('http://a/v1', '2 servers (http://a/v1, http://b/v1)')
    """
    if len(urls) < 2:
        return urls[0] if urls else "the servers of its job"
    return f"{count(len(urls), 'server')} ({first_of(urls)})"


def first_of(names: Sequence[str]) -> str:
    """The first names, as many as a sentence has room for.

    >>> first_of(["a", "b"]), first_of(["a"] * 116)[-9:]
    ('a, b', ', … (116)')
    """
    remainder = f", … ({len(names)})" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{remainder}"
