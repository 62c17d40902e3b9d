"""The verb `build`: the arguments of each data set."""

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands.arguments import Parser

if TYPE_CHECKING:
    from factsweep.operators.construction.paraphrase import AskAll
    from factsweep.pipeline.building.paraphraser import Model

_MOST_LINES, _MOST_WORKERS = 10_000_000, 1_024
_OF_TEXTS = "of labels and templates, for the card"
_LABELS = "a table: entity_id, labels; or .tsv: id, tab, names"


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb and its sets to the command line."""
    build = verbs.add_parser("build", description="make a data set from a knowledge base")
    sets = build.add_subparsers(dest="set", required=True, metavar="set")
    for name, fill, make, source in (
        ("facts", _add_facts, _build_facts, "a table of your own"),
        ("kamel", _add_kamel, _build_kamel, "triples, labels and questions"),
        ("myriadlama", _add_myriadlama, _build_myriadlama, "facts, names and templates"),
        ("probelm", _add_probelm, _build_probelm, "two snapshots"),
        ("wordings", _add_wordings, _build_wordings, "questions, by a model"),
        ("knowledge-base", _add_knowledge_base, _build_knowledge_base, "facts or a Wikidata dump"),
    ):
        command = sets.add_parser(name, help=f"from {source} (docs/data.md)")
        command.set_defaults(make=make, command=command)
        fill(command)
        _add_card_options(command)
    build.set_defaults(run=_build_set)


def _build_set(args: argparse.Namespace) -> int:
    from factsweep.pipeline.building.origin import describe_origin

    args.origin = describe_origin(args.set, args.command.arguments, vars(args))
    for line in args.make(args):
        print(line)
    return 0


def _add_paths(command: Parser, *, needed: bool = True, **paths: str) -> None:
    for name, text in paths.items():
        command.add_argument(f"--{name}", type=Path, required=needed, help=text)


def _add_option(command: Parser, option: str, text: str, default: int | str | list[str]) -> None:
    """Take an option of the type of its default, which its help names; of a list several."""
    is_list = isinstance(default, list)
    options: dict[str, Any] = {"nargs": "+"} if is_list else {"type": type(default)}
    value = " ".join(default) if isinstance(default, list) else default
    command.add_argument(option, default=default, help=f"{text}; default {value}", **options)


def _add_facts(command: Parser) -> None:
    table = "a table: relation, subject, object"
    command.add_argument("path", metavar="file", type=Path, help=table)
    command.add_argument("--name", help="of the set; default that of the file")
    templates = "default FILE.templates.yaml, written where there is none"
    command.add_argument("--templates", help=templates, type=Path)
    _add_option(command, "--language", "of rows that name none", "en")
    command.add_argument("--after", help="only facts of a later date", metavar="YYYY-MM-DD")
    cutoff = "of training data: metrics until it and after it"
    command.add_argument("--cutoff", help=cutoff, metavar="YYYY-MM-DD")
    _add_model(command, "templates", "relation", n=5)
    command.add_argument("--separator", help="between several answers in one cell, such as ';'")


def _add_card_options(command: Parser) -> None:
    command.add_argument("--licence", help="of the facts, for the card", default="not given")
    command.add_argument("--hub", help="where the set will be on the hub", metavar="OWNER/NAME")


def _add_kamel(kamel: Parser) -> None:
    questions = "lines: P36, question with [S]"
    _add_paths(kamel, triples="a table", labels="a table", questions=questions, out="a new folder")
    kamel.add_argument("--seed", type=int, default=0)
    _add_option(kamel, "--language", _OF_TEXTS, "en")
    _add_option(kamel, "--max-answers", "of a query", 10)
    sizes = "queries of train, dev and test; 1000 200 200"
    kamel.add_argument("--sizes", help=sizes, type=int, nargs=3, default=(1000, 200, 200))


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
    command.add_argument("--one-token", help=fits, metavar="MODEL")
    _add_option(command, "--language", _OF_TEXTS, "en")
    _add_model(command, "paraphrases", "template", n=19)


def _add_wordings(command: Parser) -> None:
    questions = "a table of questions, a folder of them, or a set of the catalog: popqa"
    command.add_argument("path", metavar="questions", type=Path, help=questions)
    _add_paths(command, out="a new table, .jsonl")
    _add_option(command, "--language", "of the questions", "en")
    _add_model(command, "wordings", "question", n=4, rounds=3)


def _add_model(command: Parser, texts: str, per: str, n: int, rounds: int = 10) -> None:
    local = "; without --endpoint a model of conf/model/, the hub or a folder" * (per != "template")
    command.add_argument("--endpoint", help="OpenAI-compatible; OPENAI_API_KEY", metavar="URL")
    command.add_argument("--model", help=f"whom to ask for {texts} there{local}")
    _add_option(command, "--n", f"{texts} per {per}", n)
    _add_option(command, "--rounds", "most times they are asked for", rounds)


def _add_probelm(command: Parser) -> None:
    _add_paths(
        command,
        before="a table: subject_id, relation_id, object_id",
        after="the same of a later snapshot",
        labels=_LABELS,
        relations="a table: relation_id, relation, statement, question, asked, max_answers",
        out="a new folder",
    )
    command.add_argument("--frame", help="the first month: 112023", required=True)
    alike = "of two labels, 0 to 1 (the paper: none)"
    command.add_argument("--max-similarity", help=alike, type=float, required=True)
    command.add_argument("--max-groups", help="drawn by seed; default all", type=int)
    _add_option(command, "--alternatives", "of a group", 10)
    _add_option(command, "--parents", "siblings share one", ["P279"])
    _add_option(command, "--language", _OF_TEXTS, "en")
    command.add_argument("--seed", type=int, default=0)


def _add_knowledge_base(command: Parser) -> None:
    _add_paths(command, out="a new folder")
    _add_paths(command, needed=False, dump="a Wikidata dump (.json, .gz, .bz2)")
    _add_option(command, "--languages", "of a dump", ["en", "mul"])
    _add_option(command, "--lines-per-part", "of a dump", 10_000)
    workers = "processes that parse a dump; default one per core"
    command.add_argument("--workers", help=workers, type=int)
    sets, tables = "sets of the catalog", "tables: one fact per row, with labels"
    command.add_argument("--data", help=sets, nargs="+", default=[], metavar="NAME[=FOLDER]")
    command.add_argument("--facts", help=tables, nargs="+", type=Path, default=[])
    _add_paths(command, needed=False, aliases="further names: a table, or .tsv: id, names")


def _call_builder(build: Callable[..., Iterator[str]], args: argparse.Namespace) -> Iterator[str]:
    return build(**{name: getattr(args, name) for name in signature(build).parameters})


def _build_kamel(args: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.kamel import build_kamel

    return _call_builder(build_kamel, args)


def _build_probelm(args: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.probelm import build_probelm

    return _call_builder(build_probelm, args)


def _build_facts(args: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.facts import build_facts

    args.model = _model(args, is_loaded_here=True)
    return _call_builder(build_facts, args)


def _build_wordings(args: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.wordings import build_wordings

    args.model = _model(args, is_loaded_here=True)
    if args.model is None:
        raise InputError("--model is missing; name a model, and --endpoint where it is asked.")
    return _call_builder(build_wordings, args)


def _build_myriadlama(args: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.myriadlama import build_myriadlama, one_token
    from factsweep.pipeline.inputs.files import texts_by_relation

    if bool(args.endpoint) != bool(args.model):
        raise InputError("--endpoint and --model go together; give both or neither.")
    if args.endpoint and args.paraphrases:
        raise InputError("--endpoint asks and --paraphrases reads what was asked; give one.")
    args.model = _model(args)
    if args.model and args.hints:
        args.model.hints.update(texts_by_relation(args.hints, "hint"))
    args.fits = one_token(args.one_token) if args.one_token else None
    return _call_builder(build_myriadlama, args)


def _model(args: argparse.Namespace, *, is_loaded_here: bool = False) -> "Model | None":
    """The model that writes texts, at an endpoint or loaded here; None if none is given."""
    from factsweep.operators.engines.endpoint.openai_client import OpenAIChat, key
    from factsweep.pipeline.building.paraphraser import Model, ask_at_once

    if args.endpoint and not args.model:
        raise InputError(
            "--endpoint needs --model, the name of the model that is asked there; give it."
        )
    for name in ("n", "rounds"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name} {getattr(args, name)}; it must be at least 1.")
    if args.endpoint:
        ask_all: AskAll = partial(ask_at_once, OpenAIChat(args.endpoint, args.model, key()))
    elif args.model and is_loaded_here:
        from factsweep.pipeline.decoding.engine import build_prompter

        ask_all = build_prompter(args.model)
    else:
        return None
    return Model(args.model, ask_all, args.n, args.rounds)


def _build_knowledge_base(args: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.building.knowledge_base import build_from_dump, build_from_facts

    if args.dump is None:
        return _call_builder(build_from_facts, args)
    if args.data or args.facts or args.aliases:
        raise InputError("--dump is read alone; leave out --data, --facts and --aliases.")
    args.workers = args.workers or os.cpu_count() or 1
    for name, most in (("lines_per_part", _MOST_LINES), ("workers", _MOST_WORKERS)):
        if not 1 <= (value := getattr(args, name)) <= most:
            option = name.replace("_", "-")
            raise InputError(f"--{option} {value}; it must be from 1 to {most:,}.")
    return _call_builder(build_from_dump, args)
