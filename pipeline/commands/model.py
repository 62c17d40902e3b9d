"""The verb `model`: what a model's own files say, as a file for conf/model/."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from factsweep.pipeline.commands.arguments import Parser

if TYPE_CHECKING:
    from factsweep.pipeline.config.run import Run

_TEXT = "print a model as YAML, and a prompt as the model reads it"


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

    from factsweep.pipeline.config.settings import load

    run = load([f"model={asked.model}", *asked.overrides])
    print("defaults: [base/any@_here_, _self_]")
    print(yaml.safe_dump(_fields(run), sort_keys=False, allow_unicode=True), end="", flush=True)
    for each in _prompts(run):
        print(f"# {each}")
    return 0


def _fields(run: "Run") -> dict[str, Any]:
    """The fields of the model that differ from those of any model; a branch as its commit."""
    from dataclasses import asdict

    from factsweep.pipeline.config.compose import ANY_MODEL, composed
    from factsweep.pipeline.inputs import models

    model = run.model
    base = composed([f"model={ANY_MODEL}"])["model"]
    found = asdict(model)
    if model.source == "hub":
        found["revision"] = models.resolve(model).revision
    return {field: value for field, value in found.items() if value != base[field]}


def _prompts(run: "Run") -> Iterator[str]:
    """The first prompt of each setting, special tokens written out."""
    from factsweep.operators.prompts.tokens import visible
    from factsweep.pipeline.costs import calibration
    from factsweep.pipeline.inputs import models
    from factsweep.pipeline.stages.expand import Expand

    if run.model.endpoint is not None:  # the server renders it
        return
    with calibration.prepared(run) as plan:
        tokenizer = models.tokenizer(plan.weights)
        for branch in plan.branches:
            question = next(
                q for _, q in branch.asked() if q.table == run.method.ask.ability.answers
            )
            expand = branch.step(branch.prompts).stage
            assert isinstance(expand, Expand), "prompts are expanded"
            expansion = next(expand.expansions())
            text = question.asked(expansion.of(question.source))["text"][0]
            (ids,) = question.task.token_ids(tokenizer, [text])
            yield f"{branch.title}, {len(ids)} tokens: {visible(tokenizer, ids)!r}"
