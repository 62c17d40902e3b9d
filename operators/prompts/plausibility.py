"""PRobELM's prompts: each candidate of a group, put into words in one of three ways (section 3).

    statement     Marcelo has citizenship of Spain.
    completion    Fill in the blank: Marcelo has citizenship of ____. Answer: Spain
    question      Question: What citizenship does Marcelo have? Answer: Spain.

An item is a text of which the likelihood is computed, in two parts that follow each other:
`context`, which the candidates of a group share, and `continuation`:

    context             continuation
    Marcelo has citizenship of| Spain.
                                ‾‾‾‾‾ entity_start to entity_end

**Tokens.** The blank belongs to the continuation, since most tokenizers make one token of a blank
and the word behind it. The whole text is tokenised, so the pieces of a word do not depend on the
cut; `entity_tokens` are the entity's. Where the entity comes first (`[Y] edits [X].`), the context
is empty, and its first token has a probability only if the model has a BOS token.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.probelm import candidates
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.expansion import Expansion, places
from factsweep.operators.schemas import schema

PromptType = Literal["statement", "completion", "question"]
PROMPT_TYPES: tuple[PromptType, ...] = get_args(PromptType)
BLANK = "____"

ITEMS = schema("""
    item_id text, pair_id text, candidate_id text, setting text, context text, continuation text,
    entity_start uint32, entity_end uint32,  -- code points of the text, as tokenizers count
    permutation_rank uint32  -- the group's place in a seeded order: the lowest are scored twice
""")


@dataclass(frozen=True)
class Plausibility:
    """The setting of the texts, apart from the facts."""

    prompt_types: tuple[PromptType, ...]

    def __post_init__(self) -> None:
        """Refuse no type at all, and the same type twice."""
        if not self.prompt_types or len(set(self.prompt_types)) < len(self.prompt_types):
            raise InputError(
                f"prompt.prompt_types=[{', '.join(self.prompt_types)}]; "
                f"name each of {', '.join(PROMPT_TYPES)} once, or some of them."
            )

    @property
    def name(self) -> str:
        """The setting's name where its types are measured together: `all`, or the types."""
        return "all" if set(self.prompt_types) == set(PROMPT_TYPES) else "+".join(self.prompt_types)

    @property
    def variant(self) -> None:
        """Null: there are no differences from the defaults."""
        return


def expand(facts: Facts, setting: Plausibility, *, seed: int) -> Iterator[Expansion]:
    """The items as prompts, a relation at a time; a group shares a context in each type.

    A prompt's id is the item's, its query the continuation, its calibration rank the group's
    permutation rank.

    Raises:
        InputError: a relation has no template of the style that a prompt type needs.
    """
    everything = pl.concat([items(facts, name, seed=seed) for name in setting.prompt_types])
    everything = everything.with_columns(context_id=pl.format("{}.{}", "pair_id", "setting"))
    none = pl.lit([], pl.List(pl.String))
    for relation_id in facts.relations["relation_id"]:
        pairs = facts.pairs.filter(relation_id=relation_id)
        rows = everything.join(pairs, on="pair_id", how="semi", maintain_order="left")
        first = rows.unique("context_id", keep="first", maintain_order=True)
        contexts = first.select("context_id", "setting", text="context", demonstrations=none)
        is_question = pl.col("setting") == "question"
        number = pl.when(is_question).then(pl.lit("001")).otherwise(pl.lit("000"))
        prompts = rows.select(
            *("pair_id", "context_id", "entity_start", "entity_end"),
            prompt_id="item_id",
            template_id=pl.format("{}.{}", pl.lit(relation_id), number),
            subject_index=pl.lit(0, pl.UInt16),
            query="continuation",
            calibration_rank="permutation_rank",
        )
        yield Expansion(relation_id, prompts, contexts, together="context_id")


def items(facts: Facts, prompt_type: PromptType, *, seed: int) -> pl.DataFrame:
    """All items of a prompt type (columns: ITEMS), relation by relation, groups together.

    An item_id is the candidate's with the prompt type. The seed gives `permutation_rank` alone.

    Raises:
        InputError: a relation has no template of the style that the type needs.
    """
    rank = places(seed, "permutation", facts.pairs["pair_id"]).alias("permutation_rank")
    subjects = facts.pairs.select("pair_id", rank, subject=pl.col("subjects").list.first())
    rows = candidates(facts).join(subjects, on="pair_id", maintain_order="left")
    tables = [
        cut_texts(rows.filter(relation_id=relation_id), _template(facts, relation_id, prompt_type))
        for relation_id in facts.relations["relation_id"]
    ]
    setting = pl.lit(prompt_type)
    item_id = pl.format("{}.{}", "candidate_id", setting)
    rows = pl.concat(tables).with_columns(setting=setting, item_id=item_id)
    return rows.select(pl.col(name).cast(dtype) for name, dtype in ITEMS.items())


def entity_tokens(
    offsets: Sequence[tuple[int, int]], entity_start: int, entity_end: int
) -> tuple[int, int]:
    """The tokens [start, end) with a character of the entity, by the offsets of the tokens.

    A token that reaches from the entity into the following text is the entity's, too. Special
    tokens have the offset (0, 0).

    >>> offsets = [(0, 0), (0, 2), (2, 7), (7, 11), (11, 14), (14, 15)]  # <s>|Bo| uses| tea|pot|.
    >>> entity_tokens(offsets, 8, 14)
    (3, 5)
    """
    spans = enumerate(offsets)
    places = [i for i, (start, end) in spans if start < entity_end and end > entity_start]
    return (places[0], places[-1] + 1) if places else (0, 0)


def _template(facts: Facts, relation_id: str, prompt_type: PromptType) -> str:
    style = "question" if prompt_type == "question" else "statement"
    templates = facts.templates.filter(relation_id=relation_id, style=style).sort("template_id")
    if templates.is_empty():
        raise InputError(
            f"relation {relation_id} has no {style} template for prompt type "
            f"{prompt_type}; add one or leave the relation out."
        )
    text: str = templates["text"][0]
    if prompt_type == "completion":
        return f"Fill in the blank: {text.replace('[Y]', BLANK)} Answer: [Y]"
    return text


def cut_texts(rows: pl.DataFrame, template: str) -> pl.DataFrame:
    """The parts of each candidate's text; both names are filled in at once, neither into the other.

    If the entity occurs twice, the continuation begins at the first, and `entity_start` is that of
    the last: the answer.
    """
    pieces = [piece for piece in re.split(r"(\[[XY]\])", template) if piece]
    names = {"[X]": pl.col("subject"), "[Y]": pl.col("label")}
    parts = [pl.lit(""), *(names.get(piece, pl.lit(piece)) for piece in pieces)]
    first = 1 + pieces.index("[Y]")
    last = len(pieces) - pieces[::-1].index("[Y]")
    context = pl.concat_str(parts[:first]).str.strip_chars_end(" ")
    entity_start = pl.concat_str(parts[:last]).str.len_chars()
    return rows.with_columns(
        context=context,
        continuation=pl.concat_str(parts).str.slice(context.str.len_chars()),
        entity_start=entity_start,
        entity_end=entity_start + pl.col("label").str.len_chars(),
    )
