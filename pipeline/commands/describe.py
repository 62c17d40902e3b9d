"""The verb `describe`: a data set's counts and diversity."""

import argparse

from factsweep.pipeline.commands.arguments import Parser
from factsweep.pipeline.commands.shown import shown


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    describe = verbs.add_parser(
        "describe",
        description="count a data set and measure its diversity",
        examples=[
            "factsweep describe myriadlama-mini",
            "factsweep describe ./mine --out tables",
            "factsweep describe benchmark.path=facts.csv",
        ],
    )
    describe.add_argument(
        "name", help="an entry of data_catalog/, or a folder or file; benchmark.path=… as for a run"
    )
    describe.add_argument("--path", help="a local copy of the data: a folder or a file")
    describe.add_argument("--parser", help="a spaCy pipeline: measures syntax")
    describe.add_argument("--encoder", help="a sentence encoder, folder or id: measures semantics")
    describe.add_argument("--out", help="a folder: the tables as Markdown, CSV and LaTeX")
    describe.set_defaults(run=_describe)


def _describe(asked: argparse.Namespace) -> int:
    from factsweep.pipeline.inputs.describe import describe

    options = {"parser": asked.parser, "encoder": asked.encoder, "out": asked.out}
    name = asked.name.removeprefix("benchmark.path=")
    for line in describe(name, asked.path, **options):
        print(shown(line))
    return 0
