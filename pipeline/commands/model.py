"""The verb `model`: what a model's own files say, as a file for conf/model/."""

import argparse
from typing import Any

from factsweep.pipeline.commands.arguments import Parser

_TEXT = "print a model as YAML: what its own files say, and the commit of the hub"


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    command = verbs.add_parser(
        "model",
        description=_TEXT,
        examples=["factsweep model show Qwen/Qwen3-8B-Base > factsweep.d/model/mine.yaml"],
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    show = actions.add_parser("show", help=_TEXT, description=_TEXT)
    show.take(
        "model", keys=None, about="MODEL is an id of the hub, a folder, or one of conf/model/."
    )
    show.set_defaults(run=_show)


def _show(asked: argparse.Namespace) -> int:
    import yaml

    fields = _fields(asked.model, asked.overrides)
    print("defaults: [base/any@_here_, _self_]")
    print(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), end="")
    return 0


def _fields(name: str, overrides: list[str]) -> dict[str, Any]:
    """The fields of the model that differ from those of any model; a branch as its commit."""
    from dataclasses import asdict

    from factsweep.pipeline.config.compose import ANY_MODEL, composed
    from factsweep.pipeline.config.settings import load
    from factsweep.pipeline.inputs import models

    model = load([f"model={name}", *overrides]).model
    base = composed([f"model={ANY_MODEL}"])["model"]
    found = asdict(model)
    if model.source == "hub":
        found["revision"] = models.resolve(model).revision
    return {field: value for field, value in found.items() if value != base[field]}
