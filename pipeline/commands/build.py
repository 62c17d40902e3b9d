"""The verb `build`: its arguments, and what each set is made with."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands.arguments import Parser

_MOST_LINES, _MOST_WORKERS = 10_000_000, 1_024


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb and its sets to the command line."""
    build = verbs.add_parser("build", description="make a data set from a knowledge base")
    sets = build.add_subparsers(dest="set", required=True, metavar="set")
    _add_facts(sets.add_parser("facts", help="from a table of your own (docs/data.md)"))
    _add_kamel(sets.add_parser("kamel", help="from triples, labels and questions (docs/data.md)"))
    _add_myriadlama(
        sets.add_parser("myriadlama", help="from facts, names and templates (docs/data.md)")
    )
    _add_probelm(sets.add_parser("probelm", help="from two snapshots (docs/data.md)"))
    _add_knowledge_base(
        sets.add_parser("knowledge-base", help="from facts or a Wikidata dump (docs/data.md)")
    )
    build.set_defaults(run=_build)


def _build(asked: argparse.Namespace) -> int:
    for line in _BUILDERS[str(asked.set)](asked):
        print(line)
    return 0


def _add_facts(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, help="a table: relation, subject, object")
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
    kamel.add_argument("--triples", type=Path, required=True, help="a table")
    kamel.add_argument("--labels", type=Path, required=True, help="a table")
    kamel.add_argument(
        "--questions", type=Path, required=True, help="lines: P36, question with [S]"
    )
    kamel.add_argument("--out", type=Path, required=True, help="a new folder")
    kamel.add_argument("--seed", type=int, default=0)
    kamel.add_argument("--max-answers", type=int, default=10, help="of a query; default 10")
    sizes = "queries of train, dev and test; 1000 200 200"
    kamel.add_argument("--sizes", type=int, nargs=3, default=(1000, 200, 200), help=sizes)


def _add_myriadlama(command: argparse.ArgumentParser) -> None:
    for name, needed, what in (
        ("facts", True, "a table: relation_id, subject_id, object_id"),
        ("templates", True, "manual ones: a table, or lines: P36, [Y] is the capital of [X]."),
        ("labels", False, "a table: entity_id, labels; or .tsv: id, tab, names"),
        ("knowledge", False, "a table as that of the facts: further objects of their pairs"),
        ("dump", False, "a Wikidata dump (.json, .gz, .bz2) in place of labels and knowledge"),
        ("paraphrases", False, "a review sheet that a person has filled in"),
        ("hints", False, "lines: P937, a sentence on what its entities are"),
        ("out", True, "a new folder"),
    ):
        command.add_argument(f"--{name}", type=Path, required=needed, help=what)
    command.add_argument(
        "--languages", nargs="+", default=["en", "mul"], help="of a dump; default en mul"
    )
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
    for name, what in (
        ("before", "a table: subject_id, relation_id, object_id"),
        ("after", "the same of a later snapshot"),
        ("labels", "a table: entity_id, labels; or .tsv: id, tab, names"),
        ("relations", "a table: relation_id, relation, statement, question, asked, max_answers"),
        ("out", "a new folder"),
    ):
        command.add_argument(f"--{name}", type=Path, required=True, help=what)
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
    command.add_argument("--out", type=Path, required=True, help="a new folder")
    command.add_argument("--dump", type=Path, help="a Wikidata dump (.json, .gz, .bz2)")
    command.add_argument(
        "--languages", nargs="+", default=["en", "mul"], help="of a dump; default en mul"
    )
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
    command.add_argument("--aliases", type=Path, help="further names: a table, or .tsv: id, names")


def _facts(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.operators.engines.endpoint.openai_chat import OpenAIChat
    from factsweep.operators.engines.endpoint.openai_client import key
    from factsweep.pipeline.execution.engine import prompted
    from factsweep.pipeline.inputs.builders.asking import Model
    from factsweep.pipeline.inputs.builders.facts import build_facts

    _check_numbers(asked)
    if asked.endpoint and not asked.model:
        raise InputError(
            "--endpoint needs --model, the name of the model that is asked there; give it."
        )
    model = None
    if asked.model:
        url = asked.endpoint
        ask = OpenAIChat(url, asked.model, key()) if url else prompted(asked.model)
        model = Model(asked.model, ask, asked.n, asked.rounds)
    return build_facts(
        asked.file,
        name=asked.name,
        templates=asked.templates,
        language=asked.language,
        after=asked.after,
        cutoff=asked.cutoff,
        licence=asked.licence,
        model=model,
    )


def _kamel(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.operators.construction.kamel import Sizes
    from factsweep.pipeline.inputs.builders.kamel import build_kamel

    return build_kamel(
        asked.triples,
        asked.labels,
        asked.questions,
        asked.out,
        seed=asked.seed,
        sizes=Sizes(*asked.sizes),
        max_answers=asked.max_answers,
    )


def _myriadlama(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.operators.engines.endpoint.openai_chat import OpenAIChat
    from factsweep.operators.engines.endpoint.openai_client import key
    from factsweep.pipeline.inputs.builders.asking import Model
    from factsweep.pipeline.inputs.builders.myriadlama import Sources, build_myriadlama, one_token
    from factsweep.pipeline.inputs.builders.sources import texts_by_relation

    if bool(asked.endpoint) != bool(asked.model):
        raise InputError("--endpoint and --model go together; give both or neither.")
    if asked.endpoint and asked.paraphrases:
        raise InputError("--endpoint asks and --paraphrases reads what was asked; give one.")
    _check_numbers(asked)
    model = None
    if asked.endpoint:
        hints = dict(texts_by_relation(asked.hints, "hint")) if asked.hints else {}
        ask = OpenAIChat(asked.endpoint, asked.model, key())
        model = Model(asked.model, ask, asked.n, asked.rounds, hints)
    files = (asked.facts, asked.templates, asked.labels, asked.knowledge, asked.dump)
    sources = Sources(*files, languages=tuple(asked.languages))
    return build_myriadlama(
        sources,
        asked.out,
        n=asked.n,
        model=model,
        sheet=asked.paraphrases,
        fits=one_token(asked.one_token) if asked.one_token else None,
    )


def _check_numbers(asked: argparse.Namespace) -> None:
    for name in ("n", "rounds"):
        if getattr(asked, name) < 1:
            raise InputError(f"--{name} {getattr(asked, name)}; it must be at least 1.")


def _probelm(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.inputs.builders.probelm import build_probelm

    return build_probelm(
        asked.before,
        asked.after,
        asked.labels,
        asked.relations,
        asked.out,
        frame=asked.frame,
        max_similarity=asked.max_similarity,
        seed=asked.seed,
        max_groups=asked.max_groups,
        n_alternatives=asked.alternatives,
        parents_by=asked.parents,
    )


def _knowledge_base(asked: argparse.Namespace) -> Iterator[str]:
    from factsweep.pipeline.inputs.builders.knowledge_base import build_from_dump, build_from_facts

    if asked.dump is None:
        return build_from_facts(asked.data, asked.facts, asked.aliases, asked.out)
    if asked.data or asked.facts or asked.aliases:
        raise InputError("--dump is read alone; leave out --data, --facts and --aliases.")
    workers = asked.workers or os.cpu_count() or 1
    for name, value, most in (
        ("lines-per-part", asked.lines_per_part, _MOST_LINES),
        ("workers", workers, _MOST_WORKERS),
    ):
        if not 1 <= value <= most:
            raise InputError(f"--{name} {value}; it must be from 1 to {most:,}.")
    return build_from_dump(
        asked.dump,
        asked.out,
        languages=asked.languages,
        lines_per_part=asked.lines_per_part,
        workers=workers,
    )


_BUILDERS = {
    "facts": _facts,
    "kamel": _kamel,
    "knowledge-base": _knowledge_base,
    "myriadlama": _myriadlama,
    "probelm": _probelm,
}
