"""The verb `build`: its arguments, and what each set is made with."""

import argparse
import os
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands.arguments import Parser

if TYPE_CHECKING:
    from factsweep.operators.construction.paraphrase import Ask
    from factsweep.pipeline.building.asking import Model

_MOST_LINES, _MOST_WORKERS = 10_000_000, 1_024
_LABELS = "a table: entity_id, labels; or .tsv: id, tab, names"
_Default = int | str | list[str]


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb and its sets to the command line."""
    build = verbs.add_parser("build", description="make a data set from a knowledge base")
    sets = build.add_subparsers(dest="set", required=True, metavar="set")
    for name, fill, make, of in (
        ("facts", _add_facts, _facts, "a table of your own"),
        ("kamel", _add_kamel, _kamel, "triples, labels and questions"),
        ("myriadlama", _add_myriadlama, _myriadlama, "facts, names and templates"),
        ("probelm", _add_probelm, _probelm, "two snapshots"),
        ("knowledge-base", _add_knowledge_base, _knowledge_base, "facts or a Wikidata dump"),
    ):
        command = sets.add_parser(name, help=f"from {of} (docs/data.md)")
        command.set_defaults(make=make)
        fill(command)
    build.set_defaults(run=_build)


def _build(asked: argparse.Namespace) -> int:
    for line in asked.make(asked):
        print(line)
    return 0


def _add_paths(command: Parser, *, needed: bool = True, **paths: str) -> None:
    for name, what in paths.items():
        command.add_argument(f"--{name}", type=Path, required=needed, help=what)


def _add(command: Parser, option: str, of: str, default: _Default) -> None:
    """Take an option of the type of its default, which its help names; of a list several."""
    told, how = f"{default}", dict[str, Any](type=type(default))
    if isinstance(default, list):
        told, how = " ".join(default), {"nargs": "+"}
    command.add_argument(option, default=default, help=f"{of}; default {told}", **how)


def _add_facts(command: Parser) -> None:
    table = "a table: relation, subject, object"
    command.add_argument("path", metavar="file", type=Path, help=table)
    command.option("--name", "of the set; default that of the file")
    templates = "default FILE.templates.yaml, written where there is none"
    command.option("--templates", templates, type=Path)
    _add(command, "--language", "of rows that name none", "en")
    command.option("--after", "only facts of a later date", metavar="YYYY-MM-DD")
    cutoff = "of training data: metrics until it and after it"
    command.option("--cutoff", cutoff, metavar="YYYY-MM-DD")
    _add_asked(command, "templates", n=5)
    command.option("--licence", "of the facts, for the card", default="not given")
    command.option("--separator", "between several answers in one cell, such as ';'")


def _add_kamel(kamel: Parser) -> None:
    questions = "lines: P36, question with [S]"
    _add_paths(kamel, triples="a table", labels="a table", questions=questions, out="a new folder")
    kamel.add_argument("--seed", type=int, default=0)
    _add(kamel, "--max-answers", "of a query", 10)
    sizes = "queries of train, dev and test; 1000 200 200"
    kamel.option("--sizes", sizes, type=int, nargs=3, default=(1000, 200, 200))


def _add_myriadlama(command: Parser) -> None:
    _add_paths(
        command,
        facts="a table: relation_id, subject_id, object_id",
        templates="manual ones: a table, or lines: P36, [Y] is the capital of [X].",
        labels=_LABELS,
    )
    _add_paths(
        command,
        needed=False,
        knowledge="a table as that of the facts: further objects of their pairs",
        paraphrases="a review sheet that a person has filled in",
        hints="lines: P937, a sentence on what its entities are",
    )
    _add_paths(command, out="a new folder")
    fits = "leave out objects whose label is not one of its tokens"
    command.option("--one-token", fits, metavar="MODEL")
    _add_asked(command, "paraphrases", n=19)


def _add_asked(command: Parser, what: str, n: int) -> None:
    of = {"templates": "relation", "paraphrases": "template"}[what]
    here = "; without --endpoint a model of conf/model/, the hub or a folder" * (of == "relation")
    command.option("--endpoint", "OpenAI-compatible; OPENAI_API_KEY", metavar="URL")
    command.option("--model", f"whom to ask for {what} there{here}")
    _add(command, "--n", f"{what} per {of}", n)
    _add(command, "--rounds", "most times they are asked for", 10)


def _add_probelm(command: Parser) -> None:
    _add_paths(
        command,
        before="a table: subject_id, relation_id, object_id",
        after="the same of a later snapshot",
        labels=_LABELS,
        relations="a table: relation_id, relation, statement, question, asked, max_answers",
        out="a new folder",
    )
    command.option("--frame", "the first month: 112023", required=True)
    alike = "of two labels, 0 to 1 (the paper: none)"
    command.option("--max-similarity", alike, type=float, required=True)
    command.option("--max-groups", "drawn by seed; default all", type=int)
    _add(command, "--alternatives", "of a group", 10)
    _add(command, "--parents", "siblings share one", ["P279"])
    command.add_argument("--seed", type=int, default=0)


def _add_knowledge_base(command: Parser) -> None:
    _add_paths(command, out="a new folder")
    _add_paths(command, needed=False, dump="a Wikidata dump (.json, .gz, .bz2)")
    _add(command, "--languages", "of a dump", ["en", "mul"])
    _add(command, "--lines-per-part", "of a dump", 10_000)
    workers = "processes that parse a dump; default one per core"
    command.option("--workers", workers, type=int)
    sets, tables = "sets of the catalog", "tables: one fact per row, with labels"
    command.option("--data", sets, nargs="+", default=[], metavar="NAME[=FOLDER]")
    command.option("--facts", tables, nargs="+", type=Path, default=[])
    _add_paths(command, needed=False, aliases="further names: a table, or .tsv: id, names")


def _called(build: Callable[..., Iterator[str]], asked: argparse.Namespace) -> Iterator[str]:
    """A builder with what was asked for under the names of its parameters."""
    return build(**{name: getattr(asked, name) for name in signature(build).parameters})


def _kamel(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.kamel import build_kamel

    return _called(build_kamel, asked)


def _probelm(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.probelm import build_probelm

    return _called(build_probelm, asked)


def _facts(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.facts import build_facts
    from factsweep.pipeline.decoding.engine import build_prompter

    if asked.endpoint and not asked.model:
        raise InputError(
            "--endpoint needs --model, the name of the model that is asked there; give it."
        )
    asked.model = _model(asked, build_prompter)
    return _called(build_facts, asked)


def _myriadlama(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.myriadlama import build_myriadlama, one_token
    from factsweep.pipeline.inputs.files import texts_by_relation

    if bool(asked.endpoint) != bool(asked.model):
        raise InputError("--endpoint and --model go together; give both or neither.")
    if asked.endpoint and asked.paraphrases:
        raise InputError("--endpoint asks and --paraphrases reads what was asked; give one.")
    asked.model = _model(asked)
    if asked.model and asked.hints:
        asked.model.hints.update(texts_by_relation(asked.hints, "hint"))
    asked.fits = one_token(asked.one_token) if asked.one_token else None
    return _called(build_myriadlama, asked)


def _model(
    asked: argparse.Namespace, local: "Callable[[str], Ask] | None" = None
) -> "Model | None":
    """Who is asked for texts: a model of an endpoint, or one that is loaded here; null: nobody."""
    from factsweep.operators.engines.endpoint.openai_client import OpenAIChat, key
    from factsweep.pipeline.building.asking import Model

    for name in ("n", "rounds"):
        if getattr(asked, name) < 1:
            raise InputError(f"--{name} {getattr(asked, name)}; it must be at least 1.")
    if asked.endpoint:
        ask: Ask = OpenAIChat(asked.endpoint, asked.model, key())
    elif asked.model and local:
        ask = local(asked.model)
    else:
        return None
    return Model(asked.model, ask, asked.n, asked.rounds)


def _knowledge_base(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.knowledge_base import build_from_dump, build_from_facts

    if asked.dump is None:
        return _called(build_from_facts, asked)
    if asked.data or asked.facts or asked.aliases:
        raise InputError("--dump is read alone; leave out --data, --facts and --aliases.")
    asked.workers = asked.workers or os.cpu_count() or 1
    for name, most in (("lines_per_part", _MOST_LINES), ("workers", _MOST_WORKERS)):
        if not 1 <= (value := getattr(asked, name)) <= most:
            option = name.replace("_", "-")
            raise InputError(f"--{option} {value}; it must be from 1 to {most:,}.")
    return _called(build_from_dump, asked)
