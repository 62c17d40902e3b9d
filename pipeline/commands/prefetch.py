"""The verb `prefetch`: models and data, before the workers that have no network need them."""

import argparse
import sys


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command line."""
    help_text = "fetch models and data into a shared cache, once, and check their checksums"
    command = verbs.add_parser("prefetch", help=help_text, description=help_text)
    listed = "Hydra overrides; lists are of runs: model=llama3-8b,llama3-70b benchmark=myriadlama"
    command.add_argument("overrides", nargs="*", help=listed)
    command.set_defaults(run=_prefetch)


def _prefetch(asked: argparse.Namespace) -> int:
    from pipeline.inputs.prefetch import prefetch

    for line in prefetch(asked.overrides, lambda note: print(note, file=sys.stderr)):
        print(line, flush=True)
    return 0
