"""The verb `doctor`: whether this machine, its stores and its cluster will carry a run."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from factsweep.pipeline.commands.arguments import ENCODED, Parser

if TYPE_CHECKING:
    from factsweep.pipeline.cluster.machine import Finding


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    doctor = verbs.add_parser(
        "doctor",
        description="look at all that a run needs, before it costs anything",
        examples=[
            "factsweep doctor",
            "factsweep doctor model=llama3-70b artifacts=s3://bucket/sweeps",
            "factsweep doctor model=llama3-70b --load model.engine.load_format=dummy",
            "factsweep doctor cluster=ray cluster.address=auto --report doctor.txt",
        ],
    )
    doctor.take(
        keys=None,
        about="The overrides are those of the run. With cluster.address, every node of that Ray "
        "is looked at too. Exit code 1 where something fails.",
        run=execute,
    )
    engine = "start the engine as the sweep would, ask 200 of its prompts, and ask them again"
    doctor.flag("--load", engine)
    doctor.flag("--json", "print the findings as JSON")
    report = "write them there too, to attach to an issue: no secrets"
    doctor.option("--report", report, metavar="FILE")
    doctor.flag("--percent-encoded", ENCODED)


def execute(asked: argparse.Namespace) -> int:
    """Print what was found, as it is found; exit code 1 where something fails."""
    from factsweep.pipeline.config.settings import load as settings
    from factsweep.pipeline.doctor.examination import examined

    found: list[Finding] = []
    lines = list[str]()
    for each in examined(settings(asked.overrides), load_engine=asked.load):
        new = _lines(each, found[-1:])
        found.append(each)
        lines += new
        if not asked.json:
            print("\n".join(new), flush=True)
    fails = sum(each.state == "fails" for each in found)
    warns = sum(each.state == "warns" for each in found)
    lines.append(f"{len(found)} checks: {fails} fail, {warns} warn")
    print(json.dumps([asdict(each) for each in found], indent=1) if asked.json else lines[-1])
    if asked.report:
        Path(asked.report).write_text("\n".join([*_versions(), *lines, ""]), "utf-8")
    return 1 if fails else 0


def _lines(finding: "Finding", before: "Sequence[Finding]") -> list[str]:
    """A finding, under its group where that is another than before."""
    same = any(each.group == finding.group for each in before)
    return [str(finding)] if same else [finding.group, str(finding)]


def _versions() -> Iterator[str]:
    from factsweep.pipeline.machine.software import versions

    names = ("factsweep", "ray", "torch", "transformers", "polars", "pyarrow")
    yield ", ".join(f"{name} {version}" for name, version in versions(*names).items())
