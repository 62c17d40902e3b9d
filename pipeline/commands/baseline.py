"""The verb `baseline`: the run that a nightly is compared with."""

import argparse
import shlex

from factsweep.pipeline.commands.arguments import Parser, places


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    command = verbs.add_parser(
        "baseline",
        description="accept or show the run that a nightly is compared with",
        examples=["factsweep baseline accept demo demo-2026-11-20", "factsweep baseline show demo"],
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    text = "compare a nightly with this run from now on"
    accept = actions.add_parser("accept", help=text, description=text)
    accept.take(
        *("nightly", "accepted"),
        about="NIGHTLY is one of conf/nightly/, or a YAML file; ACCEPTED a night "
        "(demo-2026-11-21), or a run.",
    )
    text = "list the accepted runs, the last one first"
    show = actions.add_parser("show", help=text, description=text)
    show.take("nightly", about="NIGHTLY is one of conf/nightly/, or a YAML file.")
    accept.set_defaults(run=_accept)
    show.set_defaults(run=_show)


def _accept(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.nightly import baseline, night

    night.load(asked.nightly)
    name = night.label(asked.nightly)
    found = baseline.accept(name, asked.accepted, places(asked)["results"])
    runs = ", ".join(found.runs)
    print(f"{name} is compared with {found.run} from now on ({runs}).")
    return 0


def _show(asked: argparse.Namespace) -> int:
    from factsweep.operators.errors import InputError
    from factsweep.pipeline.nightly import baseline, night

    night.load(asked.nightly)
    name = night.label(asked.nightly)
    where = places(asked)["results"]
    found = baseline.history(name, where)
    if not found:
        words = ["baseline", "accept", asked.nightly, "RUN", *asked.overrides]
        fix = shlex.join(["factsweep", *words])
        raise InputError(
            f"{name} has no baseline; accept one with: {fix}. Runs are the folders in {where}."
        )
    for each in reversed(found):
        verdict = f", verdict {each.verdict}" if each.verdict else ""
        print(
            f"{each.accepted_at}  {each.run}  by {each.accepted_by}, "
            f"commit {(each.commit or 'unknown')[:12]}{verdict}"
        )
    return 0
