"""judge: a model judges the answers of a run in runs of its own, and the run is measured with it.

<results>/judge-<model>/<digest>/answers.jsonl   answers to judge, each once; and the run over them
                        <digest>-again/          those without a verdict, with a stricter line

An answer is identified by the text that the judge reads about it. An answer of an earlier table is
not asked again, whichever run gave it; only new ones make a new table.
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import CostLimitError, DecodingError, InputError, UnavailableError
from factsweep.operators.matching.answer_span import add_spans
from factsweep.operators.matching.verdicts import VERDICTS, add_judged_text
from factsweep.operators.prompts.judge import JudgePrompt
from factsweep.operators.schemas import schema
from factsweep.operators.wording import count
from factsweep.operators.wording.safe_names import check_run
from factsweep.pipeline.config.folders import below, home, is_url
from factsweep.pipeline.config.literal_overrides import quote
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load, run_of_record
from factsweep.pipeline.results import past_runs
from factsweep.pipeline.results.past_runs import PastBranch, Record
from factsweep.pipeline.runs.run import compute, make_given, measure_run
from factsweep.pipeline.stages.expand import prompts_of
from factsweep.pipeline.stages.match import Verdicts, answers_of, read_extra_tables
from factsweep.pipeline.stages.plan import build_plan
from factsweep.pipeline.storage.store import Store

_TABLE = "answers.jsonl"
_AGAIN = "-again"
_ASKED = ("prompt_id", "pair_id", "subject_index", "same_as")
_OWN = ("benchmark", "run_name", "answers", "budget", "judges", "target", "sweep")  # keys of it
_TEXTS = schema("relation_id text, judged_id text, judged_text text")
_TEMPLATE = "model.chat_template"


class Judgement(NamedTuple):
    """A run with its judges, and a sentence on the verdicts of this one."""

    run: Run
    sentence: str


def judge(name: str, overrides: Sequence[str]) -> Judgement:
    """Have a model judge the answers of a run, and write the run's results with its verdicts.

    Raises:
        InputError: there is no such run, its answers are not judged by models, the judge cannot be
            asked, costs too much, or gives no verdict at all.
    """
    base = _load_judge(overrides)
    record = past_runs.record(base.results, name)
    run = replace(run_of_record(record["run"]), name=name, results=base.results)
    own_store = any(text.startswith("artifacts=") for text in overrides)
    store = base.artifacts if own_store else record["run"]["artifacts"]
    run, overrides = replace(run, artifacts=store), [*overrides, f"artifacts={quote(store)}"]
    if not run.method.measure.takes_judges:
        raise InputError(
            f"{name} is a run of benchmark={run.benchmark.name}; answers to open questions "
            "(benchmark=qa) are what models can judge."
        )
    tables = [_TEXTS.to_frame(), *_list_answers(name, record, store)]
    texts = pl.concat(tables).unique("judged_id", maintain_order=True)
    if texts.is_empty():
        raise InputError(f"{name} has no answers to judge; run it first.")
    model, folders = base.model.name, list[str]()
    for with_reminder in (False, True):  # only replies without a verdict are asked again
        texts_to_ask = texts
        if with_reminder:
            replies = _read_replies(store, folders).filter(pl.col("state").is_null())
            texts_to_ask = texts.join(replies, on="judged_id", how="semi", maintain_order="left")
        runs = _find_runs(base, overrides, texts_to_ask, with_reminder=with_reminder)
        folders += map(_ask_judge, list(runs))
    verdicts = _read_replies(store, folders).drop_nulls("state")
    unjudged = texts.join(verdicts, on="judged_id", how="anti")
    if unjudged.height == texts.height:
        raise InputError(
            f"the judge {model} gave none of its three words for any of "
            f"{count(texts.height, 'answer')}; choose a model that follows instructions, or "
            f"another prompt.instruct. The results of {name} are unchanged."
        )
    judges = past_runs.record(base.results, name)["run"].get("judges") or ()  # judged meanwhile
    verdicts_of = partial(Verdicts.of_metrics, Store(store))
    other_judges = [folder for folder in judges if verdicts_of(folder).judge != model]
    judged = replace(run, judges=(*other_judges, *folders))
    _measure_judged(judged)
    answers = count(texts.height, "answer")
    return Judgement(judged, f"judge {model}: {answers}, {unjudged.height:,} without a verdict")


def _read_replies(store: str, folders: Sequence[str]) -> pl.DataFrame:
    """The replies of a judge, by artifacts of its metrics: judged_id, state (null: no verdict)."""
    tables = (Verdicts.of_metrics(Store(store), folder).read() for folder in folders)
    return pl.concat([VERDICTS.to_frame(), *tables])


def _load_judge(overrides: Sequence[str], *more: str) -> Run:
    """The run of a judge; it is asked in a chat, unless `model.chat_template` says otherwise."""
    keys = [text.partition("=")[0] for text in overrides]
    for key in keys:
        if key.partition(".")[0] in _OWN:
            raise InputError(
                f"judge cannot take {key}=: what is judged are the answers of the named run; "
                "model=, prompt=, decoding=, max_cost= and the like are for the judge."
            )
    if not any(key == "model" for key in keys):
        raise InputError("judge needs model=, the model that judges.")
    chat = [] if _TEMPLATE in keys else [f"{_TEMPLATE}=true"]
    return load(["benchmark=judge", *chat, *overrides, *more])


def _list_answers(name: str, record: Record, store: str) -> Iterator[pl.DataFrame]:
    """The answers and samples of a run: relation_id, judged_id, judged_text."""
    content = {**record, "run": {**record["run"], "artifacts": store}}
    for branch in past_runs.settings(name, content):
        facts = branch.facts
        for relation_id in branch.relations:
            rows = add_spans(_read_answers(branch, relation_id))
            rows = add_judged_text(rows, facts.of(relation_id).pairs)
            yield rows.select(pl.lit(relation_id).alias("relation_id"), "judged_id", "judged_text")


def _read_answers(branch: PastBranch, relation_id: str) -> pl.DataFrame:
    """The answers to a relation's prompts and their samples: pair_id, subject_index, text."""
    columns = ("pair_id", "subject_index", "text")
    prompts = prompts_of(branch.artifacts["prompts"], relation_id, _ASKED)
    answers = answers_of(prompts, branch.answers, relation_id, ("prompt_id", "text"))
    samples = read_extra_tables(branch.method, branch.extra_outputs, relation_id)["samples"]
    sampled = prompts.join(samples, on="prompt_id", maintain_order="left")
    return pl.concat([answers.select(columns), sampled.select(columns)])


def _find_runs(
    base: Run, overrides: Sequence[str], texts: pl.DataFrame, *, with_reminder: bool
) -> Iterator[Run]:
    """The runs that have the verdicts on some answers: earlier ones, and one over all others.

    An earlier run counts if it is complete, or asks for nothing but these answers.
    """
    load_over = partial(_load_judge_over, base.results, overrides, with_reminder=with_reminder)
    (setting,) = base.settings
    assert isinstance(setting, JudgePrompt)
    words = setting.verdicts
    folder = f"{'fake-' * (base.decoding.engine == 'fake')}judge-{base.model.name}"
    check_run(folder)
    store, missing_ids = Store(base.results), {*texts["judged_id"]}
    for name in store.folders(folder):
        if name.endswith(_AGAIN) != with_reminder or _TABLE not in store.names(f"{folder}/{name}"):
            continue
        table = store.get(f"{folder}/{name}/{_TABLE}")
        rows = pl.read_ndjson(io.BytesIO(table))
        ids = {*rows["id"]}
        if missing_ids.isdisjoint(ids) or rows["answers"][0].to_list() != words:
            continue
        run = load_over(f"{folder}/{name}", table)
        if ids <= missing_ids or build_plan(run).is_complete():
            missing_ids -= ids
            yield run
    rows = texts.filter(pl.col("judged_id").is_in(missing_ids))
    if not rows.is_empty():
        table = _format_table(rows, words)
        digest = hashlib.sha256(table).hexdigest()[:12]
        name = f"{folder}/{digest}{_AGAIN * with_reminder}"
        store.put(f"{name}/{_TABLE}", table)
        yield load_over(name, table)


def _format_table(texts: pl.DataFrame, words: Sequence[str]) -> bytes:
    answers = pl.lit(words, pl.List(pl.String))
    names = {"id": "judged_id", "relation": "relation_id", "question": "judged_text"}
    return texts.select(**names, answers=answers).write_ndjson().encode()


def _load_judge_over(
    results: str, overrides: Sequence[str], name: str, table: bytes, *, with_reminder: bool
) -> Run:
    """The run of a judge over a table, which is in the folder of its results."""
    path = Path(below(results, f"{name}/{_TABLE}"))
    if is_url(results):  # a run reads files
        path = home() / name / _TABLE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(table)
    return _load_judge(
        overrides,
        f"benchmark.path={quote(str(path))}",
        f"run_name={quote(name)}",
        f"prompt.with_reminder={str(with_reminder).lower()}",
    )


def _ask_judge(run: Run) -> str:
    """Have the judge answer, and return the folder of its metrics."""
    try:
        measure_run(run, compute)
    except (DecodingError, CostLimitError, UnavailableError) as error:
        raise InputError(f"the judge {run.model.name}: {error}") from error
    return build_plan(run).branches[0].metrics.folder


def _measure_judged(run: Run) -> None:
    """Write the results of a run from its present answers."""
    plan = build_plan(run)
    for artifact in plan.outputs:
        if not artifact.is_complete():
            raise InputError(
                f"the answers of {run.name} were given by another version or model than would be "
                f"asked now ({artifact.store.where(artifact.folder)} is missing); run it again, "
                "then judge it."
            )
    measure_run(run, make_given)
