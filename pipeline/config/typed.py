"""From YAML's mappings to frozen dataclasses: every field there, of its type, and no other."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from operators.errors import InputError

T = TypeVar("T")


def build(kind: type[T], values: Any, path: str) -> T:
    """A dataclass from a mapping, every field there and of its type, and no other.

    Raises:
        InputError: it names the field, what was found and what was expected.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{path} is {values!r}; it must be a group of fields.")
    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    prefix = f"{path}." if path else ""
    for name in values:
        if name not in names:
            known = f"{path or 'conf/config.yaml'} has {', '.join(names)}"
            raise InputError(f"{prefix}{name} is no known field; {known}.")
    for name in names:
        if name not in values:
            raise InputError(f"{prefix}{name} is missing; give it a value.")
    return kind(**{name: _value(hints[name], values[name], f"{prefix}{name}") for name in names})


def _value(hint: Any, value: Any, path: str) -> Any:
    """The value as the type that the field declares."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return build(hint, value, path)  # type: ignore[arg-type]
    if origin in (Union, UnionType):
        inner = [a for a in arguments if a is not type(None)]
        return None if value is None else _value(_of_kind(inner, value, path), value, path)
    if origin is Literal:
        if value in arguments:
            return value
        raise InputError(f"{path}={value!r}; it must be one of {', '.join(map(str, arguments))}.")
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(arguments[0], each, path) for each in value)
    if origin is dict and isinstance(value, dict):
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is hint:
        return value
    expected = getattr(hint, "__name__", str(hint))
    raise InputError(f"{path}={value!r} has type {type(value).__name__}; it must be {expected}.")


def _of_kind(hints: Sequence[Any], value: Any, path: str) -> Any:
    """The one type there is, or the dataclass whose `kind` the value names."""
    if len(hints) == 1:
        return hints[0]
    kinds = {get_args(get_type_hints(hint)["kind"])[0]: hint for hint in hints}
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if kind not in kinds:
        raise InputError(f"{path}.kind={kind!r}; it must be one of {', '.join(kinds)}.")
    return kinds[kind]
