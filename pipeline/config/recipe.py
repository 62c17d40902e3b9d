"""Fields of conf/: their ranges, whether they can change a number, and values that are refused.

Every field is declared part of a recipe, or with the reason why it is none.

    dtype: InRecipe[str]                   part of the recipe of everything that an engine writes
    name: InTables[str]                    a name in the tables: part of the recipe of metrics alone
    address: Annotated[str, NoNumber("it says where the work is done, not what is done")]

A field that is a dataclass, and is not declared, has its own fields declared instead.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config

from factsweep.operators.errors import InputError
from factsweep.operators.wording import suggestion

T = TypeVar("T")

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_JSON = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))
_SHOWN = 200  # characters of a value in a message
_UNKNOWN = "unexpected_keyword_argument"
_MUST_BE = {  # where pydantic's own words are none of YAML
    "tuple_type": "be a list",
    "dict_type": "be a group of fields",
    "dataclass_type": "be a group of fields",
    "union_tag_invalid": "be one of {expected_tags}",
    "string_pattern_mismatch": "be text of more than blanks, without the character NUL",
}

# Types with a range: upper limits are far above any use, and stop slips.
# NUL ends a text for the operating system, and so changes what a name names.
AnyText = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
NotEmpty = Annotated[AnyText, Field(min_length=1)]  # a text to stop at may be a blank
Text = Annotated[NotEmpty, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
# Slurm's notation of a time; bare minutes come as a number.
SlurmTime = Annotated[Text, BeforeValidator(lambda time: str(time) if type(time) is int else time)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
CountOrNone = Annotated[int, Field(ge=0, le=10_000_000)]  # 0: none of them
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=1, le=604_800)]  # a week
WholeSeconds = Annotated[int, Field(ge=0, le=604_800)]


@dataclass(frozen=True)
class Part:
    """A field that can change a number, and so is part of a recipe."""

    of: Literal["answers", "tables"]
    but: tuple[str, ...] = ()  # keys of a mapping that cannot
    if_given: bool = False  # a null is left out of the recipe


@dataclass(frozen=True)
class NoNumber:
    """A field that changes no number, and the reason why it cannot."""

    because: str


InRecipe = Annotated[T, Part("answers")]
InRecipeIfGiven = Annotated[T | None, Part("answers", if_given=True)]
InTables = Annotated[T, Part("tables")]


def declarations(kind: type[Any]) -> Mapping[str, Part | NoNumber | None]:
    """What each field of a dataclass is declared as; null where it is not."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _declaration(hints[field.name]) for field in fields(kind)}


def _declaration(hint: Any) -> Part | NoNumber | None:
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, Part | NoNumber)), None)


def in_recipe(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass that are declared `InRecipe`, by name, as a recipe holds them.

    Those of dataclasses within it are included, under the name of the field that holds them.

    Raises:
        TypeError: a field is not declared at all.
    """
    found = {}
    for name, declared in declarations(type(thing)).items():
        value = getattr(thing, name)
        if isinstance(declared, Part) and declared.of == "answers":
            if value is None and declared.if_given:
                continue
            if declared.but:
                value = {key: each for key, each in value.items() if key not in declared.but}
            found[name] = value if declared.but else _plain(value)
        elif declared is None and is_dataclass(value):
            found |= {name: inner} if (inner := in_recipe(value)) else {}
        elif declared is None:
            raise TypeError(f"{type(thing).__name__}.{name} is declared neither way.")
    return found


def _plain(value: Any) -> Any:
    """A value without dataclasses, as JSON can hold it."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return asdict(value) if is_dataclass(value) else value  # type: ignore[arg-type]


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
        raise InputError(_sentence(kind, wrong, path)) from error
    return found


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(_STRICT)(kind))


def fields_of(kind: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass with their types and ranges."""
    return get_type_hints(kind, include_extras=True)


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


def _sentence(kind: type[Any], error: Mapping[str, Any], path: str) -> str:
    """What is wrong with a field, as one sentence: what was found, and what is allowed."""
    what, given, ctx = error["type"], error["input"], error.get("ctx", {})
    names, known, kinds = [path] * bool(path), list[str](), [kind]
    for part in error["loc"]:
        if chosen := [k for k in kinds if part in get_args(get_type_hints(k).get("kind"))]:
            kinds = chosen
            continue
        if isinstance(part, str):
            hints = {name: hint for each in kinds for name, hint in fields_of(each).items()}
            if part not in hints and what != _UNKNOWN:  # the type that pydantic tried of several
                continue
            known, kinds = list(hints), list(dataclasses_in(hints.get(part)))
        names.append(str(part))
    if what.startswith("union_tag"):
        names, given = [*names, "kind"], ctx.get("tag")
    name, group = ".".join(names), ".".join(names[:-1])
    if what in ("missing", "union_tag_not_found"):
        return f"{name} is missing; give it a value."
    if what == _UNKNOWN:
        meant = suggestion(names[-1], known)
        has = f"{group or 'conf/config.yaml'} has {', '.join(known)}"
        return f"{name} is no known field; {has}.{meant}"
    must = _MUST_BE.get(what, "").format(**ctx) or error["msg"].partition(" should ")[2]
    choices = re.findall(r"'([^']*)'", str(ctx.get("expected", ctx.get("expected_tags", ""))))
    meant = suggestion(given, choices) if isinstance(given, str) else ""
    how = f"it must {must}" if must else error["msg"]
    return f"{name}={_as_yaml(given)}; {how}.{meant}"


def _as_yaml(value: Any) -> str:
    """A value nearly as the user wrote it; text has quotes, since 1 and '1' differ."""
    shown = repr(value)
    if not isinstance(value, str | float):  # a number, true, null, a list or a mapping, in one line
        shown = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
        shown = shown.removesuffix("\n").removesuffix("\n...")
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
