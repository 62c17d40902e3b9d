"""How masked (encoder) models are asked: the bare sentence with one mask, nothing before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.expansion import Expansion, calibration_ranks, names
from factsweep.operators.prompts.setting import (
    MASK,
    Setting,
    Templates,
    eligible,
    filled,
    with_forms,
)

CONTENT_FREE = ("N/A", "", "?")


@dataclass(frozen=True)
class Masked:
    """What determines the text of a masked model's prompt, apart from the facts."""

    templates: Templates = "all"

    @property
    def name(self) -> str:
        """As the setting stands in tables."""
        return "masked"

    @property
    def variant(self) -> str | None:
        """The departures from the defaults, as they stand in the column `variant`."""
        return None if self.templates == "all" else f"templates={self.templates}"


def expand(facts: Facts, setting: Masked, *, seed: int) -> Iterator[Expansion]:
    """All prompts of a masked model, a relation at a time, the prompts of a template together.

    A query is the template with [X] filled and [Y] as the literal "[MASK]"; the one context,
    "masked", is empty. Ids and calibration ranks are those of the decoders' zero-shot prompts, so
    that runs of both kinds can be compared prompt by prompt. `same_as` stays within the relation:
    the same sentence under another relation has other candidates.

    Source: BELIEF, section 2.1.

    Raises:
        InputError: a relation has no usable template, or a template not exactly one [Y].
    """
    templates = _templates(facts, setting)
    ranks = calibration_ranks(facts, _as_decoder(setting), seed)
    for relation_id in facts.relations["relation_id"]:
        mine = templates.filter(relation_id=relation_id)
        if mine.is_empty():
            raise InputError(
                f"relation {relation_id} has no template for prompt.templates={setting.templates}; "
                "add one or leave the relation out."
            )
        prompts = _prompts(mine, facts.of(relation_id), ranks)
        yield Expansion(relation_id, prompts, _context(), _as_prompts(content_free(mine)))


def content_free(templates: pl.DataFrame) -> pl.DataFrame:
    """Three prompts per template whose subject says nothing: "N/A", "" and "?".

    Columns: template_id, relation_id, subject, query, prompt_id.

    Source: BELIEF, section 5.4 and footnote 12, after Zhao et al. 2021.
    """
    subjects = pl.DataFrame({"subject": CONTENT_FREE}).with_row_index("index")
    asked = pl.col("text").str.replace_all("[Y]", MASK, literal=True)
    return templates.join(subjects, how="cross", maintain_order="left_right").select(
        "template_id",
        "relation_id",
        "subject",
        query=filled(asked, pl.col("subject"), pl.lit(None, pl.String)),
        prompt_id=pl.format("{}.content-free.{}.{}", "relation_id", _number(), "index"),
    )


def _as_prompts(rows: pl.DataFrame) -> pl.DataFrame:
    """Content-free prompts as the table of that name."""
    return rows.select(
        "prompt_id",
        "template_id",
        "query",
        pair_id=pl.lit(None, pl.String),
        subject_index=pl.lit(0),
        context_id=pl.lit("masked"),
        same_as=pl.lit(None, pl.String),
        calibration_rank=pl.lit(None, pl.UInt32),
    )


def encode(tokenizer: Any, queries: Sequence[str]) -> list[list[int]]:
    """The token ids of each query, special tokens included, "[MASK]" as the model's own mask.

    Raises:
        InputError: the tokenizer has no mask token, or a query not exactly one.
    """
    if tokenizer.mask_token is None:
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} has no mask token; "
            "give a masked language model or ask in another setting."
        )
    if not queries:
        return []
    texts = [query.replace(MASK, tokenizer.mask_token) for query in queries]
    found: list[list[int]] = tokenizer(texts).input_ids
    for query, ids in zip(queries, found, strict=True):
        if (n_masks := ids.count(tokenizer.mask_token_id)) != 1:
            raise InputError(
                f"prompt {query!r} has {n_masks} masks instead of one; "
                f"correct its template, or the name that holds {MASK}."
            )
    return found


def _as_decoder(setting: Masked) -> Setting:
    return Setting("zero-shot", shots=0, templates=setting.templates)


def _templates(facts: Facts, setting: Masked) -> pl.DataFrame:
    templates = eligible(facts.templates, _as_decoder(setting))
    slots = pl.col("text").str.count_matches("[Y]", literal=True)
    wrong = templates.filter(slots != 1)
    if not wrong.is_empty():
        template_id, text = wrong.select("template_id", "text").row(0)
        raise InputError(
            f"template {template_id} ({text!r}) has {text.count('[Y]')} [Y]; "
            "a masked model fills one: leave one."
        )
    return templates


def _prompts(templates: pl.DataFrame, facts: Facts, ranks: pl.DataFrame) -> pl.DataFrame:
    """The table `prompts` of one relation."""
    named, forms = with_forms(names(facts.pairs), facts)
    rows = templates.join(named, how="cross").select(
        pl.format("{}.{}.{}", "pair_id", _number(), "subject_index").alias("prompt_id"),
        "pair_id",
        "template_id",
        "subject_index",
        context_id=pl.lit("masked"),
        query=filled(pl.col("asked"), pl.col("name"), forms),
    )
    rows = rows.sort("template_id", "pair_id", "subject_index")
    first = pl.col("prompt_id").first().over("query")
    rows = rows.with_columns(same_as=pl.when(first != pl.col("prompt_id")).then(first))
    rank = ["pair_id", "template_id", "subject_index"]
    return rows.join(ranks, on=rank, how="left", maintain_order="left")


def _number() -> pl.Expr:
    """The template's number in its relation: `000` of `P36.000`."""
    return pl.col("template_id").str.strip_prefix(pl.format("{}.", "relation_id"))


def _context() -> pl.DataFrame:
    return pl.DataFrame(
        {"context_id": ["masked"], "setting": ["masked"], "text": [""], "demonstrations": [[]]},
        schema_overrides={"demonstrations": pl.List(pl.String)},
    )
