"""The verb `prefetch`: models and data, before the workers that have no network need them."""

import argparse

from factsweep.pipeline.commands.arguments import Parser


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    help_text = "fetch models and data into a shared cache, once, and check their checksums"
    command = verbs.add_parser(
        "prefetch",
        description=help_text,
        examples=["factsweep prefetch model=llama3-8b,llama3-70b benchmark=myriadlama"],
    )
    command.take(keys=None, about="A list of values stands for one run each.")
    command.set_defaults(run=_prefetch)


def _prefetch(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.inputs.prefetch import prefetch
    from factsweep.pipeline.machine.logs import note

    for line in prefetch(asked.overrides, note):
        print(line, flush=True)
    return 0
