"""From YAML's and JSON's mappings to frozen dataclasses: pydantic checks, a sentence refuses."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from operators.errors import InputError
from pipeline.config.suggestion import suggestion

T = TypeVar("T")

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_JSON = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))
_UNKNOWN = "unexpected_keyword_argument"
_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a group of fields",
    "dataclass_type": "a group of fields",
    "literal_error": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "greater_than_equal": "at least {ge:,.12g}",
    "greater_than": "more than {gt:,.12g}",
    "less_than_equal": "at most {le:,.12g}",
    "less_than": "less than {lt:,.12g}",
    "string_too_short": "text that is not empty",
    "too_short": "a list that is not empty",
}


def build(kind: type[T], values: Any, path: str) -> T:
    """A dataclass from a mapping: every field there, of its type and in its range, and no other.

    No value becomes another type, but for an integer where a float is wanted. `path` is what
    messages call the mapping.

    Raises:
        InputError: it names the field, what was found and what was expected.
    """
    try:
        # As JSON, of which a strict check takes lists for tuples and mappings for dataclasses. The
        # dataclasses in this one have no configuration of their own, and are checked as strictly.
        return TypeAdapter(with_config(_STRICT)(kind)).validate_json(_JSON.dump_json(values))
    except ValidationError as error:
        # A misspelt field is missing and unknown at once; that it is unknown says more.
        found = min(error.errors(), key=lambda each: each["type"] != _UNKNOWN)
        raise InputError(_sentence(_place(kind, found["loc"], path), found)) from error


class _Place(NamedTuple):
    """Where an error is: the whole name, the group that it is in, and what that group has.

    `or_null`: the field may be null.
    """

    name: str
    group: str
    known: list[str]
    or_null: bool = False


def _place(kind: type[Any], location: Sequence[str | int], path: str) -> _Place:
    """The place of an error, without the kind that pydantic names where there are several."""
    place, kinds = _Place(path, path, []), [kind]
    for part in location:
        if chosen := [k for k in kinds if part in get_args(get_type_hints(k).get("kind"))]:
            kinds = chosen
            continue
        hints = {name: hint for each in kinds for name, hint in get_type_hints(each).items()}
        name, hint = f"{place.name}.{part}".lstrip("."), hints.get(str(part))
        place = _Place(name, place.name, list(hints), NoneType in get_args(hint))
        kinds = list(_dataclasses(hint))
    return place


def _dataclasses(hint: Any) -> Iterator[type[Any]]:
    """The dataclasses in a type: in a union of them, or in a tuple."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for argument in get_args(hint):
        yield from _dataclasses(argument)


def _sentence(place: _Place, error: Mapping[str, Any]) -> str:
    """What is wrong, as one sentence: what was found, and what is allowed."""
    kind, given, limits = error["type"], error["input"], error.get("ctx", {})
    if kind.startswith("union_tag"):
        place, given = _Place(f"{place.name}.kind", place.name, []), limits.get("tag")
    if kind in ("missing", "union_tag_not_found"):
        return f"{place.name} is missing; give it a value."
    if kind == _UNKNOWN:
        known = f"{place.group or 'conf/config.yaml'} has {', '.join(place.known)}"
        meant = suggestion(place.name.rpartition(".")[2], place.known)
        return f"{place.name} is no known field; {known}.{meant}"
    if kind not in _EXPECTED:
        return f"{place.name}={_as_yaml(given)}: {error['msg']}."
    expected = _EXPECTED[kind].format(**limits).replace("'", "")
    null = ", or null" if place.or_null else ""
    choices = re.findall(r"'([^']*)'", limits.get("expected", ""))
    meant = suggestion(given, choices) if isinstance(given, str) else ""
    return f"{place.name}={_as_yaml(given)}; it must be {expected}{null}.{meant}"


def _as_yaml(value: Any) -> str:
    """A value nearly as the user wrote it; text has quotes, since 1 and '1' differ."""
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
