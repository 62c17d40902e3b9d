"""Folders of configuration and data sets: the shipped ones, and a user's own one.

The user's folder is $FACTSWEEP_CONFIG_DIR (`--config-dir` sets it), or factsweep.d/ in the current
folder. It has the groups of conf/ (model/mine.yaml) and data_catalog/mine.yaml. Its files replace
shipped ones of the same name.
"""

import os
from pathlib import Path
from typing import Any

import yaml

from factsweep.operators.errors import InputError, input_errors
from factsweep.pipeline.machine.text_files import check_utf8

VARIABLE = "FACTSWEEP_CONFIG_DIR"
OWN = "factsweep.d"
OWN_FACTS = "facts"  # the benchmark, and the data set, of a table of the user's own
OWN_QUESTIONS = "questions"  # those of a table of open questions
# In a wheel this is the package, in a checkout the folder that factsweep/pipeline is a link into.
_SHIPPED = Path(__file__).resolve().parents[2]
CONF = _SHIPPED / "conf"
CATALOG = _SHIPPED / "data_catalog"


def own_folder() -> Path | None:
    """The absolute path of the user's folder, if there is one; unknown groups are refused."""
    variable = os.environ.get(VARIABLE)
    folder = Path(variable or OWN).absolute()
    if not folder.is_dir():
        if variable:
            raise InputError(f"--config-dir {variable} is no folder; give one, or leave it out.")
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
    """The YAML files of a group by their names; the user's own before shipped ones."""
    shipped = CATALOG if group == CATALOG.name else CONF / group
    folder = own_folder()
    parents = [shipped] if folder is None else [shipped, folder / group]
    paths = {path.stem: path for parent in parents for path in parent.glob("*.yaml")}
    return dict(sorted(paths.items()))


def content(path: Path) -> Any:
    """The content of a YAML file, which is UTF-8."""
    with input_errors(str(path), "correct it, it must be YAML"):
        check_utf8(path)
        return yaml.safe_load(path.read_text(encoding="utf-8"))


def home() -> Path:
    """The folder of downloads, which may not exist: $FACTSWEEP_HOME, or ~/.cache/factsweep."""
    if path := os.environ.get("FACTSWEEP_HOME"):
        return Path(path)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "factsweep"


def below(root: str, folder: str) -> str:
    """The path or URL of a folder below another one; the options of a URL stay at its end.

    >>> below("results/", "a #1"), below("s3://bucket/results?region=eu-west-1", "a #1")
    ('results/a #1', 's3://bucket/results/a %231?region=eu-west-1')
    """
    if not is_url(root):
        return f"{root.rstrip('/')}/{folder}"
    url, mark, options = root.partition("?")
    for sign in "%?#":
        folder = folder.replace(sign, f"%{ord(sign):X}")
    return f"{url.rstrip('/')}/{folder}{mark}{options}"


def is_url(root: str) -> bool:
    """Whether a root is a URL rather than a path."""
    return "://" in root and not root.startswith("file://")
