"""The verb `catalog`: the data sets that there are."""

import argparse

from factsweep.pipeline.commands.arguments import Parser


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    catalog = verbs.add_parser(
        "catalog",
        description="list, fetch or verify the data sets",
        examples=["factsweep catalog list", "factsweep catalog verify kamel --path /data/KAMEL"],
    )
    catalog.add_argument("action", choices=("list", "fetch", "verify"))
    catalog.add_argument("name", nargs="?", help="an entry of data_catalog/")
    catalog.add_argument("--path", help="a local copy of the data: a folder or a file")
    catalog.set_defaults(run=_catalog)


def _catalog(asked: argparse.Namespace) -> int:
    from factsweep.operators.errors import InputError
    from factsweep.pipeline.inputs import catalog
    from factsweep.pipeline.inputs.differences import differences
    from factsweep.pipeline.machine.logs import note

    if asked.action == "list":
        for name in catalog.names():
            print(f"{name:20} {catalog.entry(name).description}")
        return 0
    if asked.name is None:
        raise InputError(f"catalog {asked.action} needs a name: {', '.join(catalog.names())}.")
    entry = catalog.entry(asked.name)
    if asked.action == "fetch":
        found = catalog.fetched(entry, note)
        print(f"{entry.name}: fetched at commit {found.commit}")
        return 0
    problems = list(differences(entry, asked.path))
    print("\n".join(problems) if problems else f"{entry.name}: as the catalog says")
    return 1 if problems else 0
