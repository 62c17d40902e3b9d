"""Several runs from one line, in Hydra's grammar: model=a,b seed=0,1 or model=glob(steps/*)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import folders


@dataclass(frozen=True)
class Expanded:
    """The overrides of one of several runs, and those of its values that not all of them share."""

    overrides: tuple[str, ...]
    varied: Mapping[str, str]


def expanded(overrides: Sequence[str]) -> list[Expanded]:
    """Each combination of the values that are given, in their order; the last one varies fastest.

    Raises:
        InputError: a pattern that nothing fits, or one for what has no list of names.

    >>> [each.overrides for each in expanded(["model=gpt2,gpt2-xl", "seed=range(0,2)"])]
    [('model=gpt2', 'seed=0'), ('model=gpt2', 'seed=1'), ('model=gpt2-xl', 'seed=0'), \
('model=gpt2-xl', 'seed=1')]
    """
    given = {each: [f"{_key(each)}={value}" for value in _values(each)] for each in overrides}
    several = {_key(each) for each, values in given.items() if values}
    found = []
    for line in product(*(values or [each] for each, values in given.items())):
        split = (each.partition("=") for each in line)
        varied = {key: value for key, _, value in split if key in several}
        found.append(Expanded(line, varied))
    return found


def several(override: str) -> bool:
    """Whether an override gives several values, of which a run takes one.

    >>> several("seed=0,1"), several("benchmark.relations=[P17,P36]")
    (True, False)
    """
    found = parsed(override)
    return found is not None and found.is_sweep_override()


def _values(override: str) -> Iterator[str]:
    found = parsed(override)
    if found is None or not found.is_sweep_override():
        return
    pattern: object = found.value()
    if isinstance(pattern, Glob):
        yield from _fitting(override, pattern)
    else:
        yield from found.sweep_string_iterator()


def parsed(override: str) -> Override | None:
    """As Hydra reads it; null: it cannot."""
    try:
        return OverridesParser.create().parse_override(override)
    except Exception:  # of the parser that is generated for Hydra's grammar
        return None


def _fitting(override: str, pattern: Glob) -> list[str]:
    """The names of a group, or the folders, that fit a pattern; numbers in them count as such."""
    key = _key(override)
    if any("/" in each for each in pattern.include):
        places = (path for each in pattern.include for path in Path().glob(each) if path.is_dir())
        names = {str(path) for path in places if not any(map(path.match, pattern.exclude))}
        found = [f"./{name}" for name in names]
    elif key in folders.groups():
        found = pattern.filter(list(folders.files(key)))
    else:
        raise InputError(
            f"{override}: patterns are for names in conf/ and for folders (model=glob(steps/*)); "
            "give the values themselves, as in seed=0,1,2."
        )
    if not found:
        raise InputError(f"{override} fits nothing; check the pattern.")
    return sorted(found, key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    """Text and numbers in turns: step-9 before step-10."""
    return [(int(each), "") if each.isdigit() else (-1, each) for each in re.split(r"(\d+)", name)]


def _key(override: str) -> str:
    return override.partition("=")[0]
