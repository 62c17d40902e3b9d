"""The origin of a set that is built: the command without paths and secrets, and its sources."""

import argparse
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from factsweep.operators.construction.set_card import UNKNOWN_LICENCE, Origin, Source
from factsweep.operators.errors import InputError
from factsweep.pipeline.inputs import catalog, digests
from factsweep.pipeline.machine import secrets
from factsweep.pipeline.machine.software import commit

_ABOUT = ("licence", "hub")  # not of the command: they describe the set
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def describe_origin(
    builder: str, actions: Iterable[argparse.Action], values: Mapping[str, Any]
) -> Origin:
    """The origin of a set that `factsweep build <builder>` makes; its files are read for digests.

    `values` are those of the options (`actions`). Files lose their folders, and addresses their
    host: a card is for everybody.

    Raises:
        InputError: a file cannot be read, or the id of the hub is none.
    """
    hub = values.get("hub")
    if hub is not None and not _HUB_ID.fullmatch(hub):
        raise InputError(f"--hub {hub}: no id of a data set on the hub; write it as OWNER/NAME.")
    licence = " ".join((values.get("licence") or "").split()) or UNKNOWN_LICENCE
    words = [word for action in actions for word in _option_words(action, values)]
    command = shlex.join(["factsweep", "build", builder, *words])
    return Origin(
        command=secrets.hidden(command),
        version=metadata.version("factsweep"),
        commit=commit(),
        sources=tuple(_list_sources(values, licence)),
        licence=secrets.hidden(licence),
        language=values.get("language") or "en",
        hub=hub,
    )


def _option_words(action: argparse.Action, values: Mapping[str, Any]) -> Iterator[str]:
    value = values.get(action.dest)
    if value is None or value == action.default or action.dest in _ABOUT:
        return
    if action.option_strings:
        yield action.option_strings[-1]
    yield from map(_public_text, _as_list(value))


def _public_text(value: object) -> str:
    text = str(value)
    if "://" in text:
        return "URL"
    name, equals, folder = text.partition("=")
    if equals and "/" in folder:  # --data NAME=FOLDER
        return name
    return Path(text).name if isinstance(value, Path) or Path(text).exists() else text


def _list_sources(values: Mapping[str, Any], licence: str) -> Iterator[Source]:
    for text in values.get("data") or ():
        entry = catalog.entry(text.partition("=")[0])
        name = f"{entry.name} ({_public_text(entry.source.id)})"
        yield Source(secrets.hidden(name), entry.licence, f"revision {entry.revision}")
    items = (item for name, value in values.items() if name != "out" for item in _as_list(value))
    yield from list_files((item for item in items if isinstance(item, Path)), licence)


def list_files(paths: Iterable[Path], licence: str) -> Iterator[Source]:
    """The files among the paths as sources, each with its SHA-256.

    Raises:
        InputError: a file cannot be read.
    """
    files = {str(path): path for path in paths if path.is_file()}
    for path, sha256 in digests.digest_each(files).items():
        yield Source(secrets.hidden(Path(path).name), licence, f"sha256:{sha256}")


def _as_list(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else [value]
