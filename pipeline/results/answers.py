"""The answers of past runs, with their facts and prompts: all at once, or shard by shard."""

from collections.abc import Iterable, Iterator

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty
from factsweep.operators.tables.shared.pivot import join_columns
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.stages.expand import prompts_of, relation_of, shards_of, with_text
from factsweep.pipeline.storage.artifact import Artifact

_ANSWER = {"text": "answer", "token": "answer"}  # columns of a decoder and an encoder


def answers(branch: PastBranch, relation: str | None = None) -> pl.DataFrame:
    """All prompts of a setting, or those of one relation, by their ids.

    Columns: model, setting, prompt_id, relation_id, relation, pair_id, subject, objects (a label
    of each right answer), template_id, template, prompt, the output of the engine (`answer`, or
    `logprob` in nats), and `correct` where the benchmark judges single answers. A prompt without an
    answer has nulls there. A model that thinks first has `thought`, too.

    Raises:
        InputError: the run asked no such relation, or an artifact of it is gone.
    """
    relations = list_relations(branch)
    if relation is not None and relation not in relations:
        raise InputError(
            f"{branch} asked nothing of {relation}; it asked of {', '.join(relations)}."
        )
    rows = pl.concat(answer_parts(branch, relations if relation is None else [relation]))
    first_label = pl.element().list.first()
    return rows.with_columns(pl.col("objects").list.eval(first_label))


def list_relations(branch: PastBranch) -> list[str]:
    """The relations that a setting asked of, in order."""
    return list(dict.fromkeys(map(relation_of, branch.artifacts["prompts"].shards("prompts"))))


def answer_parts(branch: PastBranch, relations: Iterable[str]) -> Iterator[pl.DataFrame]:
    """The rows of `answers` of some relations, a shard at a time; `objects` has all labels."""
    prompts, facts = branch.artifacts["prompts"], branch.facts
    model, setting = pl.lit(branch.model), pl.lit(branch.setting)
    for relation_id in relations:
        outputs = _read_outputs(branch, relation_id)
        for shard in shards_of(prompts, "prompts", relation_id):
            rows = with_text(prompts, "prompts", shard).rename({"text": "prompt"})
            rows = join_columns(_join_facts(rows, facts), outputs, ["prompt_id"])
            yield rows.select(model.alias("model"), setting.alias("setting"), pl.all())


def _read_outputs(branch: PastBranch, relation_id: str) -> pl.DataFrame:
    """The engine's output for each prompt of a relation, and whether it is right, by prompt_id."""
    prompts, output = branch.artifacts["prompts"], branch.answers
    ids = prompts_of(prompts, relation_id, ("prompt_id", "same_as"))
    # A prompt of another relation may have had the same text: then it alone was asked.
    sources = pl.concat([ids["prompt_id"], ids["same_as"].drop_nulls()])
    relations = {relation_id, *ids["same_as"].drop_nulls().str.split(".").list.first()}
    shards = [shard for shard in prompts.shards("prompts") if relation_of(shard) in relations]
    tables = (output.read(output.stage, shard) for shard in shards)
    outputs = pl.concat(
        rows.filter(pl.col("prompt_id").is_in(sources.implode())) for rows in tables
    )
    if not set(shards).isdisjoint(output.list_published("thoughts")):
        outputs = join_columns(outputs, thoughts(output, shards), ["prompt_id"])
    is_asked = pl.col("prompt_id").is_in(outputs["prompt_id"].implode())
    source_id = pl.when(is_asked).then("prompt_id").otherwise(pl.coalesce("same_as", "prompt_id"))
    rows = ids.select("prompt_id", source_id=source_id)
    outputs = outputs.rename({**_ANSWER, "prompt_id": "source_id"}, strict=False)
    rows = join_columns(rows, outputs, ["source_id"]).drop("source_id")
    if relation_id not in branch.relations:
        return rows
    matched = branch.matched_answers(relation_id)
    if {"prompt_id", "correct"} <= {*matched.columns}:
        rows = join_columns(rows, matched.select("prompt_id", "correct"), ["prompt_id"])
    return rows


def thoughts(answers: Artifact, shards: Iterable[str]) -> pl.DataFrame:
    """The thought before each answer: prompt_id, thought; no rows of a model without thoughts."""
    shards = sorted(set(shards).intersection(answers.list_published("thoughts")))
    rows = pl.concat([empty("thoughts"), *(answers.read("thoughts", shard) for shard in shards)])
    return rows.select("prompt_id", thought=pl.col("texts").list.first())


def _join_facts(prompts: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    objects = pl.col("objects").list.eval(pl.element().struct.field("labels"))
    pairs = facts.pairs.select("pair_id", "relation_id", "subjects", objects=objects)
    rows = join_columns(prompts, pairs, ["pair_id"])
    rows = join_columns(rows, facts.relations.rename({"label": "relation"}), ["relation_id"])
    rows = join_columns(
        rows, facts.templates.select("template_id", template="text"), ["template_id"]
    )
    subject = pl.col("subjects").list.get(pl.col("subject_index"), null_on_oob=True)
    ids = ("prompt_id", "same_as", "relation_id", "relation", "pair_id")
    texts = ("objects", "template_id", "template", "prompt")
    return rows.select(*ids, subject.alias("subject"), *texts)
