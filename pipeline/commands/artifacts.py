"""The verbs `artifacts`, `prune` and `why`: the content of a store."""

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from factsweep.operators.wording import count, join_list
from factsweep.pipeline.commands.arguments import Parser, fit_to_terminal, places

if TYPE_CHECKING:
    from factsweep.pipeline.runs.inventory import Item

_MAX_NAMES = 3  # of runs that need an artifact


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
    forget = "first forget a run that will not be finished, or whose results are lost"
    prune.add_argument("--forget", help=forget, metavar="RUN")
    explain = verbs.add_parser(
        "why",
        description="name the fields in which two artifacts differ, or what they were made of",
        examples=[
            "factsweep why 3fa9c0d1 77b1",
            "factsweep why 3f 77 artifacts=s3://bucket/sweeps",
        ],
    )
    about = "FIRST and SECOND are fingerprints, or their beginnings."
    explain.take("first", "second", about=about, run=_why)


def _artifacts(args: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.inventory import find_unneeded, list_artifacts
    from factsweep.pipeline.storage.store import Store

    folders = places(args)
    store = Store(folders["artifacts"])
    items = list_artifacts(store, folders["results"])
    if items:
        print(fit_to_terminal(_format_items(items)))
    print(_sum(items, f"in {store.where()}"))
    if idle := find_unneeded(items, unfinished=False):
        fix = shlex.join(["factsweep", "prune", *args.overrides])
        print(f"{_sum(idle, 'needed by nothing')}: {fix}")
    return 0


def _prune(args: argparse.Namespace) -> int:
    from factsweep.pipeline.runs.inventory import (
        find_unneeded,
        forget,
        list_artifacts,
        remove_artifacts,
    )
    from factsweep.pipeline.storage.store import Store

    folders = places(args)
    store = Store(folders["artifacts"])
    if args.forget is not None:
        forget(store, args.forget)
        print(f"forgotten: run {args.forget}")
    items = list_artifacts(store, folders["results"])
    chosen = find_unneeded(items, unfinished=args.unfinished)
    unfinished = [item for item in find_unneeded(items, unfinished=True) if item.needs]
    note = f"; --unfinished removes {_sum(unfinished, 'begun by no known run')}"
    note *= bool(unfinished)
    if not chosen:
        cause = f"all of {_sum(items, 'are needed')}" if items else "there are no artifacts"
        print(f"nothing to remove: {cause}{note}")
        return 0
    if not args.yes:
        print(fit_to_terminal(_format_items(chosen)))
        note *= not args.unfinished
        print(f"would remove {_sum(chosen, f'of {len(items)}')}; --yes removes them{note}")
        return 0
    names = [item.folder for item in chosen]
    deleted = set(remove_artifacts(store, names, folders["results"], unfinished=args.unfinished))
    deleted_items = [item for item in chosen if item.folder in deleted]
    print(f"removed {_sum(deleted_items, 'needed by nothing')}")
    return 0


def _format_items(items: Sequence["Item"]) -> str:
    import polars as pl

    from factsweep.operators.tables.formats import markdown
    from factsweep.operators.tables.shared.numbers import MEGABYTES

    rows = [
        {
            "artifact": f"{item.folder}{'' if item.is_complete else ' (open)'}",
            "MB": MEGABYTES.text(item.bytes),
            "needed by": _format_needs(item),
            "last used": item.used_at.astimezone().strftime("%Y-%m-%d"),
        }
        for item in items
    ]
    return markdown(pl.DataFrame(rows))


def _format_needs(item: "Item") -> str:
    names = list(dict.fromkeys(need.why for need in item.needs))
    cut = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
    return join_list([*names[:_MAX_NAMES], *cut]) if names else "nothing"


def _sum(items: Sequence["Item"], text: str) -> str:
    from factsweep.operators.tables.shared.numbers import MEGABYTES

    size = MEGABYTES.text(sum(item.bytes for item in items))
    return f"{count(len(items), 'artifact')} {text}, {size} MB"


def _why(args: argparse.Namespace) -> int:
    from factsweep.pipeline.storage.lookup import Recipes, explain_difference, find_artifact
    from factsweep.pipeline.storage.store import Store

    store = Store(places(args)["artifacts"])
    (first_name, first_recipe), (second_name, second_recipe) = (
        find_artifact(store, prefix) for prefix in (args.first, args.second)
    )
    lines = explain_difference(first_recipe, second_recipe, Recipes(store)) or ["the same recipe"]
    print("\n".join([f"{first_name} → {second_name}", *(f"  {line}" for line in lines)]))
    return 0
