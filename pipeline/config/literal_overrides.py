"""Texts and paths in overrides: the value is taken literally, without Hydra's grammar.

That grammar gives a meaning to commas, brackets, blanks, `=` and `${`. It applies to values of
other types, to `null`, and to values in quotes.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString

from factsweep.pipeline.config import folders
from factsweep.pipeline.config.recipe import alternatives, fields_of, list_dataclasses_in

_TEMPLATE = ".jinja"  # model.chat_template is a yes, a no, or a file
_PARTS = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,]+)\s*(?:,|$)""", re.DOTALL)
# An escaped interpolation, for OmegaConf: it halves the backslashes in front of `${`.
_INTERPOLATION = re.compile(r"(\\*)\$\{")


def try_parse(override: str) -> Override | None:
    """The override parsed by Hydra; None if that fails."""
    try:
        return parse(override)
    except Exception:  # of the generated parser of Hydra's grammar
        return None


@lru_cache(maxsize=256)  # the parser takes some milliseconds, and each override is read six times
def parse(override: str) -> Override:
    """The override parsed by Hydra."""
    return OverridesParser.create().parse_override(override)


def quote(text: str) -> str:
    r"""A text that Hydra reads literally.

    >>> print(quote("a, b"), quote("it's"), quote("${seed}"))
    'a, b' 'it\'s' '\${seed}'
    """
    escaped = _INTERPOLATION.sub(r"\1\1\\${", text)
    return QuotedString(escaped, Quote.single).with_quotes()


def unquote(value: str) -> str:
    """The text of a value: without its quotes, if it is quoted as a whole."""
    override = try_parse(f"text={value}")
    text = override and override._value
    return text.text if isinstance(text, QuotedString) else value


def literal(override: str) -> str:
    r"""The override with its value quoted if that is a text, a path, or not parsed by Hydra.

    >>> for override in ("answers=a (1).jsonl", "answers='a b'", "answers=null", "budget=500"):
    ...     print(literal(override))
    answers='a (1).jsonl'
    answers='a b'
    answers=null
    budget=500
    """
    name, equals, value = override.partition("=")
    if not equals or name.startswith("~"):
        return override
    reading, kinds = try_parse(override), types_of(name.lstrip("+")) or frozenset()
    if name in folders.groups():  # a model may be a folder, a benchmark a table
        is_read = reading is not None and not reading.is_sweep_override()
        return override if is_read or not _path_exists(value) else f"{name}={quote(value)}"
    if reading is not None:
        is_text = str in kinds or value.endswith(_TEMPLATE)
        element = reading._value
        if not is_text or element is None or type(element) in {QuotedString, *kinds} - {str}:
            return override
    if value.startswith("~/"):
        value = str(Path(value).expanduser())
    return f"{name}={quote(value)}"


def split_list(override: str) -> list[str]:
    """The texts of a list of values, split at its commas and quoted."""
    name, _, value = override.partition("=")
    return [literal(f"{name}={part.strip()}").partition("=")[2] for part in _PARTS.findall(value)]


def types_of(name: str) -> frozenset[Any] | None:
    """The types of a field but null, by its dotted name; None if it has no type."""
    return _collect_types().get(name)


@cache
def _collect_types() -> Mapping[str, frozenset[Any]]:
    from factsweep.operators.methods import METHODS  # they load Polars, and help needs none
    from factsweep.pipeline.config.run import Config

    of_prompts = {method.ask.setting for method in METHODS.values()}
    of_metrics = {method.measure.options for method in METHODS.values()}
    types = dict[str, frozenset[Any]]()
    for prefix, kinds in (("", {Config}), ("prompt.", of_prompts), ("metrics.", of_metrics)):
        for kind in kinds:
            _add_types(types, kind, prefix)
    return types


def _add_types(types: dict[str, frozenset[Any]], kind: type[Any], prefix: str) -> None:
    for field, hint in fields_of(kind).items():
        name = f"{prefix}{field.rstrip('_')}"  # `as` is a keyword of Python
        kinds = {get_origin(kind) or kind for kind in alternatives(hint)} - {type(None)}
        types[name] = types.get(name, frozenset()) | kinds
        for inner in list_dataclasses_in(hint):
            _add_types(types, inner, f"{name}.")


def _path_exists(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except OSError:  # too long for a name
        return False
