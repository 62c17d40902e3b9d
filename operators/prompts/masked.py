"""Prompts of masked (encoder) models: the sentence with one mask, without any context.

Their answers can be the object labels that are one token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts, template_number
from factsweep.operators.errors import InputError
from factsweep.operators.prompts import expansion
from factsweep.operators.prompts.chat import variant_of
from factsweep.operators.prompts.setting import MASK, Setting, Templates, eligible, fill_sentence
from factsweep.operators.prompts.tokens import check_reading
from factsweep.operators.schemas import refuse

CONTENT_FREE = ("N/A", "", "?")


@dataclass(frozen=True)
class MaskedSetting:
    """The setting of a masked model's prompts, apart from the facts."""

    templates: Templates = "all"

    @property
    def name(self) -> str:
        """The setting's name in tables."""
        return "masked"

    @property
    def variant(self) -> str | None:
        """The column `variant`: the differences from the defaults."""
        return variant_of(self, "templates")


def expand(facts: Facts, setting: MaskedSetting, *, seed: int) -> Iterator[expansion.Expansion]:
    """All prompts of a masked model, a relation at a time, the prompts of a template together.

    A query is the template with [X] filled and [Y] as the literal "[MASK]". Ids and calibration
    ranks are those of the decoders' zero-shot prompts, so that both can be compared. `same_as` is
    within the relation: the same sentence under another relation has other candidates.

    Source: BELIEF, section 2.1.

    Raises:
        InputError: a relation has no usable template, or a template not exactly one [Y].
    """
    as_decoder = Setting("zero-shot", shots=0, templates=setting.templates)
    templates = eligible(facts.templates, as_decoder)
    slots = pl.col("text").str.count_matches("[Y]", literal=True)
    several = (
        "template {template_id} ({text!r}) has {slots} [Y]; a masked model fills one: leave one."
    )
    columns = ["template_id", "text", "slots"]
    refuse(templates.with_columns(slots=slots), {several: slots != 1}, columns)
    ranks = expansion.calibration_ranks(facts, as_decoder, seed)
    for relation_id in facts.relations["relation_id"]:
        of_relation = templates.filter(relation_id=relation_id)
        if of_relation.is_empty():
            raise InputError(
                f"relation {relation_id} has no template for prompt.templates={setting.templates}; "
                "add one or leave the relation out."
            )
        rows = expansion.sentences(of_relation, facts.of(relation_id))
        rows = rows.sort("template_id", "pair_id", "subject_index")
        rows = rows.with_columns(expansion.same_as("query"), context_id=pl.lit("masked"))
        prompts = rows.join(ranks, on="prompt_id", how="left", maintain_order="left")
        priors = content_free(of_relation).select("prompt_id", "template_id", "query")
        priors = priors.with_columns(subject_index=pl.lit(0), context_id=pl.lit("masked"))
        yield expansion.Expansion(relation_id, prompts, expansion.bare("masked"), priors)


def content_free(templates: pl.DataFrame) -> pl.DataFrame:
    """Three prompts per template with the subjects "N/A", "" and "?", which name no entity.

    Columns: template_id, relation_id, subject, query, prompt_id.

    Source: BELIEF, section 5.4 and footnote 12, after Zhao et al. 2021.
    """
    subjects = pl.DataFrame({"subject": CONTENT_FREE}).with_row_index("index")
    rows = templates.join(subjects, how="cross", maintain_order="left_right")
    sentence = pl.col("text").str.replace_all("[Y]", MASK, literal=True)
    query = fill_sentence(sentence, pl.col("subject"), pl.lit(None, pl.String))
    prompt_id = pl.format("{}.content-free.{}.{}", "relation_id", template_number(), "index")
    return rows.select("template_id", "relation_id", "subject", query=query, prompt_id=prompt_id)


def encode_texts(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The token ids of each text, special tokens included.

    Raises:
        InputError: the first text's tokens do not read as the text (`check_reading`).
    """
    token_ids: list[list[int]] = tokenizer(texts).input_ids
    opening = tokenizer.cls_token_id
    check_reading(tokenizer, texts[0], token_ids[0], opening=opening, may_close=True)
    return token_ids


def encode(tokenizer: Any, queries: Sequence[str]) -> list[list[int]]:
    """The token ids of each query, special tokens included, "[MASK]" as the model's own mask.

    Raises:
        InputError: the tokenizer has no mask token, a query not exactly one, or the first query's
            tokens do not read as its text (`check_reading`).
    """
    if tokenizer.mask_token is None:
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} has no mask token; "
            "give a masked language model or ask in another setting."
        )
    if not queries:
        return []
    texts = [query.replace(MASK, tokenizer.mask_token) for query in queries]
    token_ids = encode_texts(tokenizer, texts)
    for query, ids in zip(queries, token_ids, strict=True):
        if (n_masks := ids.count(tokenizer.mask_token_id)) != 1:
            raise InputError(
                f"prompt {query!r} has {n_masks} masks instead of one; "
                f"correct its template, or the name that holds {MASK}."
            )
    return token_ids


def label_tokens(facts: Facts, tokenizer: Any) -> pl.DataFrame:
    """Every label of every right object, with its token where it is a single known one.

    Columns: relation_id, pair_id, object_id, label_index (0: the object's own label, then its
    aliases), label, token_id. A label is encoded after a space, as in a sentence: to some
    tokenizers a word at the start of a text is another token.
    """
    index = pl.int_ranges(pl.col("labels").list.len(), dtype=pl.UInt16)
    objects = facts.pairs.select("relation_id", "pair_id", "objects").explode("objects")
    labels = objects.unnest("objects").with_columns(label_index=index)
    labels = labels.explode("label_index", "labels").rename({"labels": "label"})
    distinct = labels["label"].unique(maintain_order=True)
    texts = [f" {label}" for label in distinct]
    encoded = tokenizer(texts, add_special_tokens=False).input_ids if texts else []
    token_ids = [
        ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None for ids in encoded
    ]
    tokens = pl.DataFrame({"label": distinct, "token_id": pl.Series(token_ids, dtype=pl.Int64)})
    return labels.join(tokens, on="label", how="left", maintain_order="left").select(
        "relation_id", "pair_id", "object_id", "label_index", "label", "token_id"
    )


def candidates(labels: pl.DataFrame) -> pl.DataFrame:
    """The distinct tokens among a relation's right answers: relation_id, label, token_id.

    Sorted by relation and token. Labels with one token, as "Us" and "US" to an uncased tokenizer,
    are one candidate, under the first of them. `labels` comes from `label_tokens`.
    """
    single = labels.drop_nulls("token_id").group_by("relation_id", "token_id", maintain_order=True)
    tokens = single.agg(pl.col("label").first()).sort("relation_id", "token_id")
    return tokens.select("relation_id", "label", "token_id")


def count_left_out(labels: pl.DataFrame) -> pl.DataFrame:
    """The labels, objects and pairs that a masked model cannot answer, one row per relation.

    Columns: relation_id; n_labels and n_labels_left_out (distinct labels; those that are not one
    token); n_objects and n_objects_left_out (of pairs; those without such a label); n_pairs and
    n_pairs_left_out (those without such an object). `labels` comes from `label_tokens`.
    """
    units = {"labels": ["label"], "objects": ["pair_id", "object_id"], "pairs": ["pair_id"]}
    table = labels.select(pl.col("relation_id").unique().sort())
    for unit, columns in units.items():
        tokens = labels.group_by("relation_id", *columns).agg(pl.col("token_id").count())
        counts = tokens.group_by("relation_id").agg(
            pl.len().cast(pl.Int64).alias(f"n_{unit}"),
            (pl.col("token_id") == 0).sum().cast(pl.Int64).alias(f"n_{unit}_left_out"),
        )
        table = table.join(counts, on="relation_id", maintain_order="left")
    return table
