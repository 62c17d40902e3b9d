"""The verb `build`: its arguments, and what each set is made with."""

import argparse
import os
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands.arguments import Parser

if TYPE_CHECKING:
    from factsweep.operators.construction.paraphrase import Ask
    from factsweep.pipeline.inputs.builders.asking import Model

_MOST_LINES, _MOST_WORKERS = 10_000_000, 1_024
_LABELS = "a table: entity_id, labels; or .tsv: id, tab, names"


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


def _add_paths(command: argparse.ArgumentParser, *, needed: bool = True, **paths: str) -> None:
    for name, what in paths.items():
        command.add_argument(f"--{name}", type=Path, required=needed, help=what)


def _add_languages(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--languages", nargs="+", default=["en", "mul"], help="of a dump; default en mul"
    )


def _add_facts(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "path", metavar="file", type=Path, help="a table: relation, subject, object"
    )
    command.add_argument("--name", help="of the set; default that of the file")
    command.add_argument(
        "--templates", type=Path, help="default FILE.templates.yaml, written where there is none"
    )
    command.add_argument("--language", default="en", help="of rows that name none; default en")
    command.add_argument("--after", metavar="YYYY-MM-DD", help="only facts of a later date")
    command.add_argument(
        "--cutoff", metavar="YYYY-MM-DD", help="of training data: metrics until it and after it"
    )
    _add_asked(command, "templates", n=5)
    command.add_argument("--licence", default="not given", help="of the facts, for the card")


def _add_kamel(kamel: argparse.ArgumentParser) -> None:
    questions = "lines: P36, question with [S]"
    _add_paths(kamel, triples="a table", labels="a table", questions=questions, out="a new folder")
    kamel.add_argument("--seed", type=int, default=0)
    kamel.add_argument("--max-answers", type=int, default=10, help="of a query; default 10")
    sizes = "queries of train, dev and test; 1000 200 200"
    kamel.add_argument("--sizes", type=int, nargs=3, default=(1000, 200, 200), help=sizes)


def _add_myriadlama(command: argparse.ArgumentParser) -> None:
    _add_paths(
        command,
        facts="a table: relation_id, subject_id, object_id",
        templates="manual ones: a table, or lines: P36, [Y] is the capital of [X].",
    )
    _add_paths(
        command,
        needed=False,
        labels=_LABELS,
        knowledge="a table as that of the facts: further objects of their pairs",
        dump="a Wikidata dump (.json, .gz, .bz2) in place of labels and knowledge",
        paraphrases="a review sheet that a person has filled in",
        hints="lines: P937, a sentence on what its entities are",
    )
    _add_paths(command, out="a new folder")
    _add_languages(command)
    command.add_argument(
        "--one-token",
        metavar="MODEL",
        help="leave out objects whose label is not one of its tokens",
    )
    _add_asked(command, "paraphrases", n=19)


def _add_asked(command: argparse.ArgumentParser, what: str, n: int) -> None:
    of = {"templates": "relation", "paraphrases": "template"}[what]
    here = "; without --endpoint a model of conf/model/, the hub or a folder" * (of == "relation")
    command.add_argument("--endpoint", metavar="URL", help="OpenAI-compatible; OPENAI_API_KEY")
    command.add_argument("--model", help=f"whom to ask for {what} there{here}")
    command.add_argument("--n", type=int, default=n, help=f"{what} per {of}; default {n}")
    command.add_argument(
        "--rounds", type=int, default=10, help="most times they are asked for; default 10"
    )


def _add_probelm(command: argparse.ArgumentParser) -> None:
    _add_paths(
        command,
        before="a table: subject_id, relation_id, object_id",
        after="the same of a later snapshot",
        labels=_LABELS,
        relations="a table: relation_id, relation, statement, question, asked, max_answers",
        out="a new folder",
    )
    command.add_argument("--frame", required=True, help="the first month: 112023")
    command.add_argument(
        "--max-similarity",
        type=float,
        required=True,
        help="of two labels, 0 to 1 (the paper: none)",
    )
    command.add_argument("--max-groups", type=int, help="drawn by seed; default all")
    command.add_argument("--alternatives", type=int, default=10, help="of a group; default 10")
    command.add_argument(
        "--parents", nargs="+", default=["P279"], help="siblings share one; default P279"
    )
    command.add_argument("--seed", type=int, default=0)


def _add_knowledge_base(command: argparse.ArgumentParser) -> None:
    _add_paths(command, out="a new folder")
    _add_paths(command, needed=False, dump="a Wikidata dump (.json, .gz, .bz2)")
    _add_languages(command)
    command.add_argument(
        "--lines-per-part", type=int, default=10_000, help="of a dump; default 10000"
    )
    command.add_argument(
        "--workers", type=int, help="processes that parse a dump; default one per core"
    )
    command.add_argument(
        "--data", nargs="+", default=[], metavar="NAME[=FOLDER]", help="sets of the catalog"
    )
    command.add_argument(
        "--facts", nargs="+", type=Path, default=[], help="tables: one fact per row, with labels"
    )
    _add_paths(command, needed=False, aliases="further names: a table, or .tsv: id, names")


def _called(build: Callable[..., Iterator[str]], asked: argparse.Namespace) -> Iterator[str]:
    """A builder with what was asked for under the names of its parameters."""
    return build(**{name: getattr(asked, name) for name in signature(build).parameters})


def _facts(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.execution.engine import prompted
    from factsweep.pipeline.inputs.builders.facts import build_facts

    if asked.endpoint and not asked.model:
        raise InputError(
            "--endpoint needs --model, the name of the model that is asked there; give it."
        )
    asked.model = _model(asked, prompted)
    return _called(build_facts, asked)


def _kamel(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.inputs.builders.kamel import build_kamel

    return _called(build_kamel, asked)


def _myriadlama(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.inputs.builders.myriadlama import Sources, build_myriadlama, one_token
    from factsweep.pipeline.inputs.builders.sources import texts_by_relation

    if bool(asked.endpoint) != bool(asked.model):
        raise InputError("--endpoint and --model go together; give both or neither.")
    if asked.endpoint and asked.paraphrases:
        raise InputError("--endpoint asks and --paraphrases reads what was asked; give one.")
    asked.model = _model(asked)
    if asked.model and asked.hints:
        asked.model.hints.update(texts_by_relation(asked.hints, "hint"))
    files = (asked.facts, asked.templates, asked.labels, asked.knowledge, asked.dump)
    asked.sources = Sources(*files, languages=tuple(asked.languages))
    asked.fits = one_token(asked.one_token) if asked.one_token else None
    return _called(build_myriadlama, asked)


def _model(
    asked: argparse.Namespace, local: "Callable[[str], Ask] | None" = None
) -> "Model | None":
    """Who is asked for texts: a model of an endpoint, or one that is loaded here; null: nobody."""
    from factsweep.operators.engines.endpoint.openai_client import OpenAIChat, key
    from factsweep.pipeline.inputs.builders.asking import Model

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


def _probelm(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.inputs.builders.probelm import build_probelm

    return _called(build_probelm, asked)


def _knowledge_base(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.inputs.builders.knowledge_base import build_from_dump, build_from_facts

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
