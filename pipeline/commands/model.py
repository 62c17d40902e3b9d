"""The verb `model`: what a model's own files say, as a file for conf/model/."""

import argparse
from typing import Any

_TEXT = "print a model as YAML: what its own files say, and the commit of the hub"


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command line."""
    command = verbs.add_parser("model", help=_TEXT, description=_TEXT)
    command.add_argument("action", choices=["show"], help="show: print it")
    command.add_argument("model", help="an id of the hub, a folder, or a name in conf/model/")
    command.add_argument("overrides", nargs="*", help="Hydra overrides: model.dtype=float32")
    command.set_defaults(run=_show)


def _show(asked: argparse.Namespace) -> int:
    import yaml

    fields = _fields(asked.model, asked.overrides)
    print("defaults: [base/any@_here_, _self_]")
    print(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), end="")
    return 0


def _fields(name: str, overrides: list[str]) -> dict[str, Any]:
    """The fields of the model that differ from those of any model; a branch as its commit."""
    from dataclasses import asdict

    from pipeline.config.compose import ANY_MODEL, composed
    from pipeline.config.settings import load
    from pipeline.inputs import models

    model = load([f"model={name}", *overrides]).model
    base = composed([f"model={ANY_MODEL}"])["model"]
    found = asdict(model)
    if model.source == "hub":
        found["revision"] = models.resolve(model).revision
    return {field: value for field, value in found.items() if value != base[field]}
