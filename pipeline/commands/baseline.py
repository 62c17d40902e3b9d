"""The verb `baseline`: the run that a nightly is compared with."""

import argparse


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command line."""
    command = verbs.add_parser(
        "baseline", help="accept or show the run that a nightly is compared with"
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    accept = actions.add_parser("accept", help="compare a nightly with this run from now on")
    show = actions.add_parser("show", help="list the accepted runs, the last one first")
    for action in (accept, show):
        action.add_argument("nightly", help="of conf/nightly/, or a YAML file")
        action.add_argument(
            "--results", default="results", help="the folder of results; default results"
        )
    accept.add_argument("accepted", metavar="run", help="a night (demo-2026-11-21), or a run")
    accept.set_defaults(run=_accept)
    show.set_defaults(run=_show)


def _accept(asked: argparse.Namespace) -> int:
    from pipeline.nightly import baseline, night

    night.load(asked.nightly)
    name = night.label(asked.nightly)
    found = baseline.accept(name, asked.accepted, asked.results)
    runs = ", ".join(found.runs)
    print(f"{name} is compared with {found.run} from now on ({runs}).")
    return 0


def _show(asked: argparse.Namespace) -> int:
    from operators.errors import InputError
    from pipeline.nightly import baseline, night

    night.load(asked.nightly)
    name = night.label(asked.nightly)
    found = baseline.history(name, asked.results)
    if not found:
        raise InputError(
            f"{name} has no baseline; accept one with: factsweep baseline accept {name} <run>."
        )
    for each in reversed(found):
        verdict = f", verdict {each.verdict}" if each.verdict else ""
        print(
            f"{each.accepted_at}  {each.run}  by {each.accepted_by}, "
            f"commit {(each.commit or 'unknown')[:12]}{verdict}"
        )
    return 0
