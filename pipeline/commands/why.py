"""The verb `why`: what two artifacts differ in."""

import argparse

from factsweep.pipeline.commands.arguments import Parser, places


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    why = verbs.add_parser(
        "why",
        description="name the fields in which two artifacts differ, or what they were made of",
        examples=[
            "factsweep why 3fa9c0d1 77b1",
            "factsweep why 3f 77 artifacts=s3://bucket/sweeps",
        ],
    )
    why.take("first", "second", about="FIRST and SECOND are fingerprints, or their beginnings.")
    why.set_defaults(run=_why)


def _why(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.storage.causes import Recipes, causes
    from factsweep.pipeline.storage.lookup import find
    from factsweep.pipeline.storage.stores.store import Store

    store = Store(places(asked)["artifacts"])
    (left, a), (right, b) = (find(store, prefix) for prefix in (asked.first, asked.second))
    found = causes(a, b, Recipes(store))
    print(f"{left} → {right}")
    print("\n".join(f"  {line}" for line in found) if found else "  the same recipe")
    return 0
