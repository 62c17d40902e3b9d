"""The verbs `catalog`, `describe`, `prefetch` and `model`: data sets and models, before a run."""

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from factsweep.pipeline.commands.arguments import Parser, fit_to_terminal

if TYPE_CHECKING:
    from factsweep.pipeline.config.model import Model
    from factsweep.pipeline.config.run import Benchmark, Run
    from factsweep.pipeline.inputs.hub import FetchedRepository, Say


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verbs to the command line."""
    catalog = verbs.add_parser(
        "catalog",
        description="list, fetch or verify the data sets",
        examples=["factsweep catalog list", "factsweep catalog verify kamel --path /data/KAMEL"],
    )
    catalog.add_argument("action", choices=("list", "fetch", "verify"))
    catalog.add_argument("name", nargs="?", help="an entry of data_catalog/")
    local = "a local copy of the data: a folder or a file"
    catalog.add_argument("--path", help=local)
    catalog.set_defaults(run=_catalog)
    describe = verbs.add_parser(
        "describe",
        description="count a data set and measure its diversity",
        examples=[
            "factsweep describe myriadlama-mini",
            "factsweep describe ./mine --out tables",
            "factsweep describe benchmark.path=facts.csv",
        ],
    )
    name = "an entry of data_catalog/, or a folder or file; benchmark.path=… as for a run"
    describe.add_argument("name", help=name)
    describe.add_argument("--path", help=local)
    describe.add_argument("--parser", help="a spaCy pipeline: measures syntax")
    describe.add_argument("--encoder", help="a sentence encoder, folder or id: measures semantics")
    describe.add_argument("--out", help="a folder: the tables as Markdown, CSV and LaTeX")
    describe.set_defaults(run=_describe)
    prefetch = verbs.add_parser(
        "prefetch",
        description="fetch models and data into a shared cache, once, and check their checksums",
        examples=["factsweep prefetch model=llama3-8b,llama3-70b benchmark=myriadlama"],
    )
    prefetch.take(keys=None, about="A list of values stands for one run each.", run=_prefetch)
    _add_model(verbs)


def _add_model(verbs: "argparse._SubParsersAction[Parser]") -> None:
    text = "print a model as YAML, and a prompt as the model reads it"
    command = verbs.add_parser(
        "model",
        description=text,
        examples=["factsweep model show Qwen/Qwen3-8B-Base > factsweep.d/model/mine.yaml"],
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    show = actions.add_parser("show", help=text, description=text)
    about = "MODEL is an id of the hub, a folder, or one of conf/model/."
    show.take("model", keys=None, about=about, run=_show_model)


def _catalog(args: argparse.Namespace) -> int:
    from factsweep.operators.errors import InputError
    from factsweep.pipeline.inputs import catalog
    from factsweep.pipeline.machine.logs import note

    if args.action == "list":
        for name in catalog.list_names():
            print(f"{name:20} {catalog.entry(name).description}")
        return 0
    if args.name is None:
        raise InputError(f"catalog {args.action} needs a name: {', '.join(catalog.list_names())}.")
    entry = catalog.entry(args.name)
    if args.action == "fetch":
        print(f"{entry.name}: fetched at commit {catalog.fetch(entry, note).commit}")
        return 0
    problems = list(catalog.list_differences(entry, args.path))
    print("\n".join(problems) if problems else f"{entry.name}: as the catalog says")
    return 1 if problems else 0


def _describe(args: argparse.Namespace) -> int:
    from factsweep.pipeline.inputs.describe import describe

    options = {"parser": args.parser, "encoder": args.encoder, "out": args.out}
    name = args.name.removeprefix("benchmark.path=")
    for line in describe(name, args.path, **options):
        print(fit_to_terminal(line))
    return 0


def _prefetch(args: argparse.Namespace) -> int:
    from factsweep.pipeline.machine.logs import note

    for line in prefetch(args.overrides, note):
        print(line, flush=True)
    return 0


def _show_model(args: argparse.Namespace) -> int:
    import yaml

    from factsweep.pipeline.config.settings import load

    run = load([f"model={args.model}", *args.overrides])
    print("defaults: [base/any@_here_, _self_]")
    text = yaml.safe_dump(_find_changed_fields(run.model), sort_keys=False, allow_unicode=True)
    print(text, end="", flush=True)
    for line in _describe_first_prompts(run):
        print(f"# {line}")
    return 0


def _find_changed_fields(model: "Model") -> dict[str, Any]:
    """The fields of the model that differ from those of any model; a branch as its commit."""
    from factsweep.pipeline.config.compose import ANY_MODEL, compose_config
    from factsweep.pipeline.inputs import models

    base, fields = compose_config([f"model={ANY_MODEL}"])["model"], asdict(model)
    if model.source == "hub":
        fields["revision"] = models.resolve(model).revision
    return {field: value for field, value in fields.items() if value != base[field]}


def _describe_first_prompts(run: "Run") -> Iterator[str]:
    from factsweep.operators.prompts.tokens import visible
    from factsweep.pipeline.inputs import models
    from factsweep.pipeline.runs import calibration

    if run.model.endpoint is not None:  # the server renders it
        return
    with calibration.prepare_plan(run) as plan:
        tokenizer = models.tokenizer(plan.weights)
        for branch, question, prompts in calibration.first_prompts(plan):
            (ids,) = question.task.token_ids(tokenizer, prompts["text"][:1].to_list())
            yield f"{branch.title}, {len(ids)} tokens: {visible(tokenizer, ids)!r}"


def prefetch(overrides: Sequence[str], say: "Say") -> Iterator[str]:
    """Fetch or check the models and data of all runs of the overrides; yields lines.

    Raises:
        InputError: one of them is unknown, or the hub does not give it.
    """
    from huggingface_hub import constants

    from factsweep.pipeline.config.compose import expand_runs
    from factsweep.pipeline.config.folders import home
    from factsweep.pipeline.config.settings import load
    from factsweep.pipeline.inputs import models

    runs = [load(member.overrides) for member in expand_runs(overrides)]
    settled = [models.resolve_dtype(run.model, run.cluster.device) for run in runs]
    sources = {replace(model, name="", billions_of_parameters=0.0): model for model in settled}
    for model in sources.values():
        yield _prefetch_model(model, say)
    benchmarks = [run.benchmark for run in runs]
    for benchmark in {(data.data, data.path): data for data in benchmarks}.values():
        yield _prefetch_data(benchmark, say)
    folders = f"HF_HUB_CACHE={constants.HF_HUB_CACHE} FACTSWEEP_HOME={os.fspath(home())}"
    yield f"workers run offline with: {folders} HF_HUB_OFFLINE=1"


def _prefetch_model(model: "Model", say: "Say") -> str:
    from factsweep.pipeline.inputs import hub, models

    if model.source == "hub":
        fetched = hub.fetch(hub.Repository(model.id, model.revision, "model"), say)
        hub.own_files(model.id, fetched.commit)  # digests are kept: no GPU waits for them
        return _describe_fetched("model", fetched)
    weights = models.resolve(model)
    return f"model {model.id}: at {weights.revision}, on this machine: {models.location(weights)}"


def _prefetch_data(benchmark: "Benchmark", say: "Say") -> str:
    from factsweep.pipeline.inputs import catalog

    entry = catalog.entry_of_benchmark(benchmark)
    if benchmark.path is None and entry.source.kind == "hub":
        return _describe_fetched("data", catalog.fetch(entry, say))
    files = catalog.list_files(entry, benchmark.path)
    return f"data {entry.name}: {len(files)} files, on this machine: {files[0].parent}"


def _describe_fetched(kind: str, fetched: "FetchedRepository") -> str:
    n_bytes = fetched.n_bytes
    size = f"{n_bytes / 1e9:,.2f} GB" if n_bytes > 1e8 else f"{n_bytes:,} bytes"
    return (
        f"{kind} {fetched.id}: commit {fetched.commit}, {fetched.n_files} files, {size}, "
        f"checksums right: {fetched.folder}"
    )
