"""How fields of conf/ are declared: their ranges, and whether they can change a number.

Every field is declared part of a recipe, or with the reason why it is none.

    dtype: InRecipe[str]                   part of the recipe of everything that an engine writes
    name: InTables[str]                    a name in the tables: part of the recipe of metrics alone
    address: Annotated[str, NoNumber("it says where the work is done, not what is done")]

A field that is a dataclass, and is not declared, has its own fields declared instead.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field

T = TypeVar("T")

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
