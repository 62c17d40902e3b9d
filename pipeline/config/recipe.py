"""Fields of conf/: their ranges, and whether they can change a number.

Every field is declared as part of a recipe, or with the reason why it is not. A field that is a
dataclass may have its own fields declared instead.

    dtype: InRecipe[str]                   part of the recipe of everything that an engine writes
    name: InTables[str]                    a name in the tables: part of the recipe of metrics alone
    address: Annotated[str, NoNumber("it says where the work is done, not what is done")]
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config

from factsweep.operators.errors import InputError
from factsweep.operators.wording import join_sentences, suggestion

T = TypeVar("T")

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_JSON = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))
_SHOWN = 200  # characters of a value in a message
_UNKNOWN = "unexpected_keyword_argument"
_MUST_BE = {  # where pydantic's own words do not fit YAML
    "tuple_type": "be a list",
    "dict_type": "be a group of fields",
    "dataclass_type": "be a group of fields",
    "union_tag_invalid": "be one of {expected_tags}",
    "string_pattern_mismatch": "be text of more than blanks, without the character NUL",
}

# Types with a range: upper limits are far above any use, and find typing errors.
# NUL ends a text for the operating system, and so changes a name.
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
    """A field that changes no number, and the reason."""

    because: str


InRecipe = Annotated[T, Part("answers")]
InRecipeIfGiven = Annotated[T | None, Part("answers", if_given=True)]
InTables = Annotated[T, Part("tables")]


def declarations(kind: type[Any]) -> Mapping[str, Part | NoNumber | None]:
    """The declaration of each field of a dataclass; None if it has none."""
    declared = dict[str, Part | NoNumber | None]()
    for name, hint in fields_of(kind).items():
        extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        declared[name] = next((e for e in extras if isinstance(e, Part | NoNumber)), None)
    return declared


def in_recipe(config: Any) -> dict[str, Any]:
    """The fields of a dataclass that are declared `InRecipe`, by name, for a recipe.

    Fields of inner dataclasses are included, under the name of the field that holds them.

    Raises:
        TypeError: a field is not declared.
    """
    recipe = {}
    for name, declared in declarations(type(config)).items():
        value = getattr(config, name)
        if isinstance(declared, Part) and declared.of == "answers":
            if declared.if_given and is_dataclass(value):  # its own fields are declared
                value = in_recipe(value) or None
            if value is None and declared.if_given:
                continue
            if declared.but:
                recipe[name] = {key: x for key, x in value.items() if key not in declared.but}
            else:
                recipe[name] = _to_json_value(value)
        elif declared is None and is_dataclass(value):
            recipe |= {name: inner} if (inner := in_recipe(value)) else {}
        elif declared is None:
            raise TypeError(f"{type(config).__name__}.{name} is declared neither way.")
    return recipe


def _to_json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json_value(element) for element in value]
    return asdict(value) if is_dataclass(value) else value  # type: ignore[arg-type]


def build(kind: type[T], values: Any, path: str) -> T:
    """Build a dataclass from a mapping that must have all of its fields, and no others.

    Values keep their type, but for integers where a float is expected. `path` is the name of the
    mapping in messages.

    Raises:
        InputError: it names each wrong field, its value and the allowed values.
    """
    try:
        text = _JSON.dump_json(values)
    except ValueError as error:
        raise InputError(
            f"{path or 'the configuration'} holds text that is no Unicode: {str(error)[:200]}."
        ) from error
    try:
        # As JSON, where a strict check takes lists for tuples and mappings for dataclasses. Inner
        # dataclasses have no configuration of their own, and are checked as strictly.
        built: T = _build_strict_adapter(kind).validate_json(text)  # type: ignore[arg-type]
    except ValidationError as error:
        raise InputError(join_sentences(_explain_errors(kind, error, path))) from error
    return built


def _explain_errors(kind: type[Any], error: ValidationError, path: str) -> list[str]:
    """A sentence per wrong field, unknown ones first.

    A misspelt field is missing and unknown at once; that it is unknown says more. A value that fits
    no type of a union has an error per type; the first counts.
    """
    details = sorted(error.errors(), key=lambda detail: detail["type"] != _UNKNOWN)
    sentences = dict[str, str]()
    for detail in details:
        name, sentence = _explain_error(kind, detail, path)
        is_misspelt = any(
            text.endswith(f" Did you mean {name.rpartition('.')[2]}?")
            for text in sentences.values()
        )
        if detail["type"] != "missing" or not is_misspelt:
            sentences.setdefault(name, sentence)
    return list(sentences.values())


@cache
def _build_strict_adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(_STRICT)(kind))


def fields_of(kind: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass with their types and ranges."""
    return get_type_hints(kind, include_extras=True)


def alternatives(hint: Any) -> set[Any]:
    """The types of a union, without their annotations."""
    if get_origin(hint) is Annotated:
        return alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return {kind for part in get_args(hint) for kind in alternatives(part)}
    return {hint}


def list_dataclasses_in(hint: Any) -> Iterator[type[Any]]:
    """The dataclasses in a type: in a union or a tuple."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for argument in get_args(hint):
        yield from list_dataclasses_in(argument)


def _explain_error(kind: type[Any], error: Mapping[str, Any], path: str) -> tuple[str, str]:
    """The field of an error of pydantic, and a sentence with its value and the allowed values."""
    problem, value, ctx = error["type"], error["input"], error.get("ctx", {})
    names, field_names, kinds = [path] * bool(path), list[str](), [kind]
    for part in error["loc"]:
        if tagged := [k for k in kinds if part in get_args(get_type_hints(k).get("kind"))]:
            kinds = tagged
            continue
        if isinstance(part, str):
            hints = {name: hint for k in kinds for name, hint in fields_of(k).items()}
            if part not in hints and problem != _UNKNOWN:  # a type of a union
                continue
            field_names, kinds = list(hints), list(list_dataclasses_in(hints.get(part)))
        names.append(str(part))
    if problem.startswith("union_tag"):
        names, value = [*names, "kind"], ctx.get("tag")
    name, group = ".".join(names), ".".join(names[:-1])
    if problem in ("missing", "union_tag_not_found"):
        return name, f"{name} is missing; give it a value."
    if problem == _UNKNOWN:
        fields = f"{group or 'conf/config.yaml'} has {', '.join(field_names)}"
        return name, f"{name} is no known field; {fields}.{suggestion(names[-1], field_names)}"
    must = _MUST_BE.get(problem, "").format(**ctx) or error["msg"].partition(" should ")[2]
    choices = re.findall(r"'([^']*)'", str(ctx.get("expected", ctx.get("expected_tags", ""))))
    suffix = suggestion(value, choices) if isinstance(value, str) else ""
    rule = f"it must {must}" if must else error["msg"]
    # Nearly as the user wrote it, in one line; text has quotes, since 1 and '1' differ.
    text = repr(value)
    if not isinstance(value, str | float):
        text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
        text = text.removesuffix("\n").removesuffix("\n...")
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return name, f"{name}={text}; {rule}.{suffix}"
