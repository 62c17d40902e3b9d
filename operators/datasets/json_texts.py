"""JSON that all readers read alike: no key twice in an object, no half of a surrogate pair.

Of a key that stands twice, some libraries keep the first value and others the last; half of a
surrogate pair is no character, and cannot be written as UTF-8.
"""

import json
from typing import Any

from factsweep.operators.errors import InputError


def parsed(text: str, where: str, fix: str = "correct or drop the line") -> Any:
    r"""The value of a JSON text.

    Raises:
        InputError: it is none, has a key twice in one object, or half of a surrogate pair.

    >>> parsed('{"P19": 1, "P19": 2}', "t.json", "correct it")
    Traceback (most recent call last):
    factsweep.operators.errors.InputError: t.json: the key 'P19' stands twice; correct it.
    """
    try:
        found = json.loads(text, object_pairs_hook=_object)
        if r"\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: no JSON ({error}); {fix}.") from error
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):x}"
        raise InputError(f"{where}: {half} is half of a surrogate pair; {fix}.") from error
    except _TwiceError as error:
        raise InputError(f"{where}: the key {error.args[0]!r} stands twice; {fix}.") from error
    return found


class _TwiceError(Exception):
    """A key that stands twice in one object."""


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        keys = [key for key, _ in members]
        raise _TwiceError(next(key for key in keys if keys.count(key) > 1))
    return found
