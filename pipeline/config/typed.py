"""From YAML's and JSON's mappings to frozen dataclasses: pydantic checks, a sentence refuses."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from factsweep.operators.errors import InputError
from factsweep.operators.wording import suggestion

T = TypeVar("T")

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_JSON = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))
_SHOWN = 200  # characters of a value in a message
_UNKNOWN = "unexpected_keyword_argument"
_LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_OF_NUMBERS = (
    *("int_type", "int_from_float", "float_type", "finite_number"),
    *("greater_than_equal", "greater_than", "less_than_equal", "less_than"),
)
_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a group of fields",
    "dataclass_type": "a group of fields",
    "literal_error": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length:,} characters",
    "string_pattern_mismatch": "text of more than blanks, without the character NUL",
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
        given = _JSON.dump_json(values)
    except ValueError as error:
        raise InputError(
            f"{path or 'the configuration'} holds text that is no Unicode: {str(error)[:200]}."
        ) from error
    try:
        # As JSON, of which a strict check takes lists for tuples and mappings for dataclasses. The
        # dataclasses in this one have no configuration of their own, and are checked as strictly.
        found: T = _adapter(kind).validate_json(given)  # type: ignore[arg-type]
    except ValidationError as error:
        # A misspelt field is missing and unknown at once; that it is unknown says more.
        wrong = min(error.errors(), key=lambda each: each["type"] != _UNKNOWN)
        raise InputError(_sentence(_place(kind, wrong["loc"], path), wrong)) from error
    return found


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(_STRICT)(kind))


class _Place(NamedTuple):
    """Where an error is: the whole name, the group that it is in, and what that group has."""

    name: str
    group: str
    known: list[str]
    hint: Any = None  # the type of the field, with the range of a number


def _place(kind: type[Any], location: Sequence[str | int], path: str) -> _Place:
    """The place of an error, without the kind that pydantic names where there are several."""
    place, kinds = _Place(path, path, []), [kind]
    for part in location:
        if chosen := [k for k in kinds if part in get_args(get_type_hints(k).get("kind"))]:
            kinds = chosen
            continue
        if isinstance(part, int):
            inner = _element(place.hint)
            place = _Place(f"{place.name}.{part}", place.name, [], inner)
            kinds = list(dataclasses_in(inner))
            continue
        hints = {name: hint for each in kinds for name, hint in fields_of(each).items()}
        name, hint = f"{place.name}.{part}".lstrip("."), hints.get(str(part))
        place = _Place(name, place.name, list(hints), hint)
        kinds = list(dataclasses_in(hint))
    return place


def fields_of(kind: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass with their types and ranges."""
    return get_type_hints(kind, include_extras=True)


def limits(hint: Any) -> dict[str, float]:
    """The range of a number by its type: `ge` or `gt`, and `le` or `lt`, as far as it has one."""
    marks = [mark for part in get_args(hint) for mark in getattr(part, "metadata", ())]
    found = {k: getattr(mark, k) for mark in marks for k in _LIMITS if hasattr(mark, k)}
    return found | {k: v for part in get_args(hint) for k, v in limits(part).items()}


def _element(hint: Any) -> Any:
    lists = [each for each in alternatives(hint) if get_origin(each) is tuple]
    return get_args(lists[0])[0] if lists else None


def alternatives(hint: Any) -> set[Any]:
    """The types that a value may have, without their annotations."""
    if get_origin(hint) is Annotated:
        return alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return {each for part in get_args(hint) for each in alternatives(part)}
    return {hint}


def dataclasses_in(hint: Any) -> Iterator[type[Any]]:
    """The dataclasses in a type: in a union of them, or in a tuple."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for argument in get_args(hint):
        yield from dataclasses_in(argument)


def _sentence(place: _Place, error: Mapping[str, Any]) -> str:
    """What is wrong, as one sentence: what was found, and what is allowed."""
    kind, given, ctx = error["type"], error["input"], error.get("ctx", {})
    if kind.startswith("union_tag"):
        place, given = _Place(f"{place.name}.kind", place.name, []), ctx.get("tag")
    if kind in ("missing", "union_tag_not_found"):
        return f"{place.name} is missing; give it a value."
    if kind == _UNKNOWN:
        known = f"{place.group or 'conf/config.yaml'} has {', '.join(place.known)}"
        meant = suggestion(place.name.rpartition(".")[2], place.known)
        return f"{place.name} is no known field; {known}.{meant}"
    if kind in _OF_NUMBERS:
        expected = _number(place.hint)
    elif kind in _EXPECTED:
        expected = _EXPECTED[kind].format(**ctx).replace("'", "")
    else:
        return f"{place.name}={_as_yaml(given)}: {error['msg']}."
    null = ", or null" if NoneType in alternatives(place.hint) else ""
    choices = re.findall(r"'([^']*)'", ctx.get("expected", ""))
    meant = suggestion(given, choices) if isinstance(given, str) else ""
    return f"{place.name}={_as_yaml(given)}; it must be {expected}{null}.{meant}"


def _number(hint: Any) -> str:
    """What a number must be: an integer from 1 to 1,000; a number, more than 0 and at most 1."""
    noun = "an integer" if int in alternatives(hint) else "a number"
    found = {name: f"{value:,.12g}" for name, value in limits(hint).items()}
    if {"ge", "le"} <= found.keys():
        return f"{noun} from {found['ge']} to {found['le']}"
    ends = [f"{word} {found[name]}" for name, word in _LIMITS.items() if name in found]
    return f"{noun}, {' and '.join(ends)}" if ends else noun


def _as_yaml(value: Any) -> str:
    """A value nearly as the user wrote it; text has quotes, since 1 and '1' differ."""
    shown = repr(value)
    if not isinstance(value, str | float):  # a number, true, null, a list or a mapping, in one line
        shown = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
        shown = shown.removesuffix("\n").removesuffix("\n...")
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
