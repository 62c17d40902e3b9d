"""Where configuration and data sets are: those that ship with factsweep, and a user's own folder.

Her folder is the one that $FACTSWEEP_CONFIG_DIR names (`--config-dir` sets it), or factsweep.d/ in
the current folder. It has the groups of conf/ (model/mine.yaml) and data_catalog/mine.yaml. A file
of hers takes the place of one of the same name that ships. `home` is for what is fetched once.
"""

import os
from pathlib import Path
from typing import Any

import yaml

from factsweep.operators.errors import InputError, refusing

VARIABLE = "FACTSWEEP_CONFIG_DIR"
OWN = "factsweep.d"
OWN_FACTS = "facts"  # the benchmark, and the data set, of a table of the user's own
# In a wheel this is the package, in a checkout the folder that factsweep/pipeline is a link into.
_SHIPPED = Path(__file__).resolve().parents[2]
CONF = _SHIPPED / "conf"
CATALOG = _SHIPPED / "data_catalog"


def own() -> Path | None:
    """The user's folder, as an absolute path; null: she has none.

    Raises:
        InputError: the folder that was named is none, or has a folder that is no group.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named or OWN).absolute()
    if not folder.is_dir():
        if named:
            raise InputError(f"--config-dir {named} is no folder; give one, or leave it out.")
        return None
    for path in folder.iterdir():
        if path.is_dir() and path.name not in groups() and not path.name.startswith((".", "_")):
            raise InputError(
                f"{path} is no group of configuration; rename it to one of {', '.join(groups())}."
            )
    return folder


def groups() -> list[str]:
    """The groups of conf/, and data_catalog."""
    return sorted([*(path.name for path in CONF.iterdir() if path.is_dir()), CATALOG.name])


def files(group: str) -> dict[str, Path]:
    """The YAML files of a group by their names; the user's own before what ships."""
    shipped = CATALOG if group == CATALOG.name else CONF / group
    folder = own()
    places = [shipped] if folder is None else [shipped, folder / group]
    found = {path.stem: path for place in places for path in place.glob("*.yaml")}
    return dict(sorted(found.items()))


def content(path: Path) -> Any:
    """What a YAML file holds.

    Raises:
        InputError: it is no file, no text, or no YAML.
    """
    with refusing(str(path), "correct it, it must be YAML"):
        return yaml.safe_load(path.read_text(encoding="utf-8"))


def home() -> Path:
    """The folder; it may not be there yet.

    Without FACTSWEEP_HOME it is factsweep in $XDG_CACHE_HOME, by default ~/.cache.
    """
    if own := os.environ.get("FACTSWEEP_HOME"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "factsweep"


def below(root: str, folder: str) -> str:
    """The path or URL of a folder below another one; the options of a URL stay behind it.

    >>> below("results/", "a #1"), below("s3://bucket/results?region=eu-west-1", "a #1")
    ('results/a #1', 's3://bucket/results/a %231?region=eu-west-1')
    """
    if not is_url(root):
        return f"{root.rstrip('/')}/{folder}"
    place, mark, options = root.partition("?")
    for sign in "%?#":
        folder = folder.replace(sign, f"%{ord(sign):X}")
    return f"{place.rstrip('/')}/{folder}{mark}{options}"


def is_url(root: str) -> bool:
    """Whether a root is a URL, and no path."""
    return "://" in root and not root.startswith("file://")
