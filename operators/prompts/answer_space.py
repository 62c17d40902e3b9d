"""BEAR's texts: each answer of a relation's answer space in each of its templates.

    The capital of Japan is Tokyo.    context | continuation, cut before the answer
    The capital of Japan is Oslo.

An item is a text that is scored whole. The items of an instance and a template are a group, which
shares the text before the answer.

Source: BEAR (Wiland, Ploner and Akbik 2024), section 2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from factsweep.operators.datasets.facts import Facts, template_number
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.expansion import Expansion, places
from factsweep.operators.prompts.plausibility import cut_texts

_MOST_ANSWERS = 65_536  # of an answer space: the number of an answer is a part of its item's id


@dataclass(frozen=True)
class AnswerSpace:
    """The setting of the texts: there is one."""

    name: str = "answer-space"

    @property
    def variant(self) -> None:
        """Null: there are no differences from the defaults."""
        return


def expand(facts: Facts, setting: AnswerSpace, *, seed: int) -> Iterator[Expansion]:
    """The items as prompts, a relation at a time; a group shares a context.

    An item's `subject_index` is the place of its answer in the answer space, its calibration rank
    that of its instance in a seeded order.

    Raises:
        InputError: an answer space is too large.
    """
    rank = places(seed, "permutation", facts.pairs["pair_id"]).alias("calibration_rank")
    ranks = facts.pairs.select("pair_id", rank)
    none = pl.lit([], pl.List(pl.String))
    for relation_id in facts.relations["relation_id"]:
        of_relation = facts.of(relation_id)
        answers = of_relation.extra_tables["answer_spaces"].select(
            subject_index="place", label="label"
        )
        if answers.height > _MOST_ANSWERS:
            raise InputError(
                f"relation {relation_id} has {answers.height:,} answers, more than "
                f"{_MOST_ANSWERS:,}; give it a smaller answer space."
            )
        subjects = of_relation.pairs.select("pair_id", subject=pl.col("subjects").list.first())
        rows = subjects.join(answers, how="cross", maintain_order="left_right")
        tables = [
            _capitalise(cut_texts(rows, text)).with_columns(template_id=pl.lit(template_id))
            for template_id, text in of_relation.templates.select("template_id", "text").iter_rows()
        ]
        items = pl.concat(tables).join(ranks, on="pair_id", maintain_order="left")
        number = template_number()
        items = items.with_columns(
            prompt_id=pl.format("{}.{}.{}", "pair_id", number, "subject_index"),
            context_id=pl.format("{}.{}", "pair_id", number),
        )
        first = items.unique("context_id", keep="first", maintain_order=True)
        contexts = first.select(
            "context_id", setting=pl.lit(setting.name), text="context", demonstrations=none
        )
        prompts = items.select(
            *("prompt_id", "pair_id", "template_id", "context_id", "calibration_rank"),
            *("entity_start", "entity_end"),
            subject_index=pl.col("subject_index").cast(pl.UInt16),
            query="continuation",
        )
        yield Expansion(relation_id, prompts, contexts, together="context_id")


def _capitalise(items: pl.DataFrame) -> pl.DataFrame:
    """The items with a capital at the beginning of the text, as BEAR's library writes it."""
    has_context = pl.col("context") != ""
    return items.with_columns(
        context=_with_capital("context"),
        continuation=pl.when(has_context)
        .then("continuation")
        .otherwise(_with_capital("continuation")),
    )


def _with_capital(column: str) -> pl.Expr:
    text = pl.col(column)
    return pl.concat_str(text.str.slice(0, 1).str.to_uppercase(), text.str.slice(1))
