"""The verbs `artifacts`, `prune` and `why`: what a store holds, what can go, and what differs."""

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factsweep.operators.wording import count, join_list
from factsweep.pipeline.commands.arguments import Parser, places, shown

if TYPE_CHECKING:
    from factsweep.pipeline.runs.inventory import Item

_NAMED = 3  # of what needs an artifact


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verbs to the command line."""
    artifacts = verbs.add_parser(
        "artifacts",
        description="list what a store holds: how large, for which runs, when last used",
        examples=["factsweep artifacts", "factsweep artifacts artifacts=s3://bucket/sweeps"],
    )
    noted = "The runs are those in results=, and all others that the store has noted."
    artifacts.take(about=noted, run=_artifacts)
    prune = verbs.add_parser(
        "prune",
        description="remove the artifacts that nothing needs; without --yes, only list them",
        examples=["factsweep prune", "factsweep prune --yes", "factsweep prune --forget demo"],
    )
    prune.take(
        about="What a run with results, a run that is not done or a baseline needs is never "
        "removed, and nothing while the store is being written.",
        run=_prune,
    )
    prune.flag("--yes", "remove them")
    prune.flag("--unfinished", "those too that were begun by no run that is known")
    text = "first forget a run that will not be finished, or whose results are lost"
    prune.option("--forget", text, metavar="RUN")
    why = verbs.add_parser(
        "why",
        description="name the fields in which two artifacts differ, or what they were made of",
        examples=[
            "factsweep why 3fa9c0d1 77b1",
            "factsweep why 3f 77 artifacts=s3://bucket/sweeps",
        ],
    )
    told = "FIRST and SECOND are fingerprints, or their beginnings."
    why.take("first", "second", about=told, run=_why)


def _artifacts(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.inventory import find_unneeded, list_artifacts
    from factsweep.pipeline.storage.store import Store

    where = places(asked)
    items = list_artifacts(Store(where["artifacts"]), where["results"])
    if items:
        print(shown(_table(items)))
    print(_sum(items, f"in {Store(where['artifacts']).where()}"))
    if idle := find_unneeded(items, unfinished=False):
        fix = shlex.join(["factsweep", "prune", *asked.overrides])
        print(f"{_sum(idle, 'needed by nothing')}: {fix}")
    return 0


def _prune(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.inventory import (
        find_unneeded,
        forget,
        list_artifacts,
        remove_artifacts,
    )
    from factsweep.pipeline.storage.store import Store

    where = places(asked)
    store = Store(where["artifacts"])
    if asked.forget is not None:
        forget(store, asked.forget)
        print(f"forgotten: run {asked.forget}")
    items = list_artifacts(store, where["results"])
    chosen = find_unneeded(items, unfinished=asked.unfinished)
    if not chosen:
        what = f"all of {_sum(items, 'are needed')}" if items else "there are no artifacts"
        print(f"nothing to remove: {what}{_begun(items)}")
        return 0
    if not asked.yes:
        print(shown(_table(chosen)))
        more = "" if asked.unfinished else _begun(items)
        print(f"would remove {_sum(chosen, f'of {len(items)}')}; --yes removes them{more}")
        return 0
    names = [item.folder for item in chosen]
    gone = set(remove_artifacts(store, names, where["results"], unfinished=asked.unfinished))
    print(f"removed {_sum([item for item in chosen if item.folder in gone], 'needed by nothing')}")
    return 0


def _begun(items: Sequence["Item"]) -> str:
    """What --unfinished would remove; empty if there is nothing."""
    from factsweep.pipeline.runs.inventory import find_unneeded

    found = [item for item in find_unneeded(items, unfinished=True) if item.needs]
    return f"; --unfinished removes {_sum(found, 'begun by no known run')}" if found else ""


def _table(items: Sequence["Item"]) -> str:
    import polars as pl

    from factsweep.operators.tables.formats import markdown
    from factsweep.operators.tables.shared.numbers import MEGABYTES

    rows = [
        {
            "artifact": f"{item.folder}{'' if item.is_complete else ' (open)'}",
            "MB": MEGABYTES.text(item.bytes),
            "needed by": _needed_by(item),
            "last used": item.used.astimezone().strftime("%Y-%m-%d"),
        }
        for item in items
    ]
    return markdown(pl.DataFrame(rows))


def _needed_by(item: "Item") -> str:
    names = list(dict.fromkeys(need.why for need in item.needs))
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return join_list([*names[:_NAMED], *more]) if names else "nothing"


def _sum(items: Sequence["Item"], what: str) -> str:
    from factsweep.operators.tables.shared.numbers import MEGABYTES

    size = MEGABYTES.text(sum(item.bytes for item in items))
    return f"{count(len(items), 'artifact')} {what}, {size} MB"


def _why(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.storage.lookup import Recipes, explain_difference, find_artifact
    from factsweep.pipeline.storage.store import Store

    store = Store(places(asked)["artifacts"])
    (left, a), (right, b) = (find_artifact(store, prefix) for prefix in (asked.first, asked.second))
    found = explain_difference(a, b, Recipes(store))
    print(f"{left} → {right}")
    print("\n".join(f"  {line}" for line in found) if found else "  the same recipe")
    return 0
