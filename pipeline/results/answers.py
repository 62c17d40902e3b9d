"""Answers with what was asked: one row per prompt, with its fact, its text and the answer."""

from collections.abc import Iterable

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty
from factsweep.operators.tables.shared.wide import joined
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages.expand import relation_of, with_text
from factsweep.pipeline.storage.artifact import Artifact

_ANSWER = {"text": "answer", "token": "answer"}  # as a decoder and an encoder give it


def answers(branch: PastBranch, relation: str | None = None) -> pl.DataFrame:
    """All prompts of a setting, or those of one relation, by their ids.

    Columns: model, setting, prompt_id, relation_id, relation, pair_id, subject, objects (a label
    of each right answer), template_id, template, prompt, what the engine gave (`answer`, or
    `logprob` in nats), and `correct` where the benchmark judges single answers. A prompt without an
    answer has nulls there. Of a model that thinks first, `thought` too.

    Raises:
        InputError: the run asked nothing of that relation, or an artifact of it is gone.
    """
    prompts, said = branch.artifacts["prompts"], branch.answers
    shards = prompts.shards("prompts")
    known = list(dict.fromkeys(map(relation_of, shards)))
    if relation is not None and relation not in known:
        raise InputError(f"{branch} asked nothing of {relation}; it asked of {', '.join(known)}.")
    mine = [shard for shard in shards if relation in (None, relation_of(shard))]
    asked = pl.concat([with_text(prompts, "prompts", shard) for shard in mine])
    # A prompt of another relation may have had the same text: then it alone was asked.
    others = {*asked["same_as"].drop_nulls().str.split(".").list.first()}
    where = [shard for shard in shards if shard in mine or relation_of(shard) in others]
    given = pl.concat([said.read(said.stage, shard) for shard in where])
    if not set(where).isdisjoint(said.published("thoughts")):
        given = joined(given, thoughts(said, where), ["prompt_id"])
    own = pl.col("prompt_id").is_in(given["prompt_id"].implode())
    asked_as = pl.when(own).then("prompt_id").otherwise(pl.coalesce("same_as", "prompt_id"))
    told = _facts(asked.rename({"text": "prompt"}), branch.facts).with_columns(asked_as=asked_as)
    answered = given.rename({**_ANSWER, "prompt_id": "asked_as"}, strict=False)
    rows = joined(told, answered, ["asked_as"]).drop("asked_as")
    named = {"model": branch.model, "setting": branch.setting}
    return _judged(branch, rows).select(*(pl.lit(v).alias(n) for n, v in named.items()), pl.all())


def thoughts(said: Artifact, shards: Iterable[str]) -> pl.DataFrame:
    """What was thought before each answer: prompt_id, thought; no rows where a model does not."""
    there = set(shards).intersection(said.published("thoughts"))
    rows = pl.concat([empty("thoughts"), *(said.read("thoughts", each) for each in sorted(there))])
    return rows.select("prompt_id", thought=pl.col("texts").list.first())


def _facts(asked: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    first_label = pl.element().struct.field("labels").list.first()
    objects = pl.col("objects").list.eval(first_label)
    pairs = facts.pairs.select("pair_id", "relation_id", "subjects", objects=objects)
    relations = facts.relations.rename({"label": "relation"})
    templates = facts.templates.select("template_id", template="text")
    rows = joined(joined(asked, pairs, ["pair_id"]), relations, ["relation_id"])
    rows = joined(rows, templates, ["template_id"])
    subject = pl.col("subjects").list.get(pl.col("subject_index"), null_on_oob=True)
    ids = ("prompt_id", "same_as", "relation_id", "relation", "pair_id")
    shown = ("objects", "template_id", "template", "prompt")
    return rows.select(*ids, subject.alias("subject"), *shown)


def _judged(branch: PastBranch, rows: pl.DataFrame) -> pl.DataFrame:
    """With the column `correct`, where the matched table has one."""
    matched = branch.matched_answers()
    if not {"prompt_id", "correct"} <= {*matched.columns}:
        return rows
    return joined(rows, matched.select("prompt_id", "correct"), ["prompt_id"])
