"""KAMEL's prompts: k training queries of the relation, answered, then the question (section 3.2).

What languages does Barack Obama speak? English; Indonesian%
What languages does Natalie Portman speak?
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import polars as pl
from pydantic import Field

from factsweep.operators import seeds
from factsweep.operators.datasets.facts import Facts, template_number
from factsweep.operators.errors import InputError
from factsweep.operators.matching.answer_set import END, SEPARATOR
from factsweep.operators.prompts.chat import As, System, check, turn, variant_of
from factsweep.operators.prompts.expansion import Expansion, places, same_as
from factsweep.operators.prompts.setting import MOST_SHOTS, Indices


@dataclass(frozen=True)
class FewShot:
    """The setting of a prompt's text, apart from the facts and the seed.

    With scope `prompt` (the paper's words) examples are drawn for each query, with `shared` once
    for all of a relation, so that an engine can reuse the prefix.

    With `as_` (in conf/: `as`) turns, each example is a turn of the user and one of the assistant,
    the question the last turn of the user, and `system` the system's turn. With chat the whole text
    is one turn of the user.

    With `leading_blank` each question begins with a blank, as in the authors' predict.py.
    """

    shots: Annotated[int, Field(ge=0, le=MOST_SHOTS)]
    scope: Literal["prompt", "shared"] = "prompt"
    split: Literal["train", "dev", "test"] = "test"
    as_: As = None
    system: System = None
    leading_blank: bool = False

    def __post_init__(self) -> None:
        """Reset the scope without shots, and an empty system prompt."""
        if not self.shots:
            object.__setattr__(self, "scope", "prompt")
        if self.system == "":
            object.__setattr__(self, "system", None)
        check(self.as_, self.system)

    @property
    def name(self) -> str:
        """The setting's name in tables: `5-shot`."""
        return f"{self.shots}-shot"

    @property
    def variant(self) -> str | None:
        """The column `variant`: the differences from the defaults."""
        return variant_of(self, "split", "scope", "leading_blank")


def expand(facts: Facts, setting: FewShot, *, seed: int) -> Iterator[Expansion]:
    """All prompts of a setting, a relation at a time; a relation without queries gives none.

    A query's examples are distinct rows of its relation's train split, drawn from the seed and the
    query's id. Prompts are sorted by (template, context, pair).

    Raises:
        InputError: a relation has fewer training queries than examples.
    """
    ids = facts.pairs.filter(split=setting.split)["pair_id"]
    ranks = ids.to_frame().with_columns(calibration_rank=places(seed, "calibration", ids))
    for relation_id in facts.relations["relation_id"]:
        of_relation = facts.of(relation_id)
        rows = _questions(of_relation, setting.split, setting)
        if rows.is_empty():
            continue
        example = pl.concat_str("query", pl.lit(" "), "answers", pl.lit(f"{END}\n"))
        if setting.as_ == "turns":
            reply = turn("assistant", pl.concat_str("answers", pl.lit(END)))
            example = pl.concat_str(turn("user", pl.col("query")), reply)
        examples = _questions(of_relation, "train", setting).with_columns(line=example)
        if examples.height < setting.shots:
            raise InputError(
                f"{setting.name} needs {setting.shots} training queries, and relation "
                f"{relation_id} has {examples.height}; ask with fewer shots or give more."
            )
        if setting.scope == "shared" or not setting.shots:
            name = relation_id if setting.shots else setting.name
            random = seeds.generator(seed, "demonstrations", setting.name, relation_id)
            draw = random.choice(examples.height, (1, setting.shots), replace=False)
            contexts = _contexts(pl.Series([name]), examples, draw, setting)
            rows = rows.with_columns(context_id=pl.lit(name))
        else:
            keys = seeds.keys(seed, f"demonstrations.{setting.name}", rows["pair_id"])
            draw = seeds.distinct_indices(keys, count=setting.shots, among=examples.height)
            contexts = _contexts(rows["prompt_id"], examples, draw, setting)
            rows = rows.with_columns(context_id="prompt_id")
        if setting.as_ == "turns":
            rows = rows.with_columns(query=turn("user", pl.col("query")))
        rows = rows.sort("template_id", "context_id", "pair_id")
        rows = rows.join(contexts.select("context_id", "text"), "context_id", maintain_order="left")
        rows = rows.join(ranks, on="pair_id", maintain_order="left")
        rows = rows.with_columns(same_as("text", "query"), subject_index=pl.lit(0, pl.UInt16))
        yield Expansion(relation_id, rows.drop("text", "answers"), contexts)


def _questions(facts: Facts, split: str, setting: FewShot) -> pl.DataFrame:
    """The queries of a split, by id: pair_id, template_id, prompt_id, query, answers."""
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").list.first())
    questions = facts.templates.sort("template_id").head(1)
    text = pl.lit(" " * setting.leading_blank) + pl.col("text").str.replace(r"\s*\[Y\]\s*\.?$", "")
    query = text.str.replace_all("[X]", pl.col("subjects").list.first(), literal=True)
    answers = labels.list.join(f"{SEPARATOR} ")
    prompt_id = pl.format("{}.{}.0", "pair_id", template_number())
    rows = facts.pairs.filter(pl.col("split") == split).sort("pair_id")
    rows = rows.join(questions, on="relation_id", maintain_order="left")
    return rows.select("pair_id", "template_id", prompt_id=prompt_id, query=query, answers=answers)


def _contexts(
    ids: pl.Series, examples: pl.DataFrame, draw: Indices, setting: FewShot
) -> pl.DataFrame:
    """The table `contexts` of a draw (contexts × shots)."""
    columns = [
        examples[name].gather(draw.ravel()).reshape((-1, setting.shots)).arr.to_list()
        if setting.shots
        else pl.Series(name, [[]] * len(ids), pl.List(pl.String))
        for name in ("line", "pair_id")
    ]
    opening = turn("system", pl.lit(setting.system)) if setting.system else pl.lit("")
    return pl.DataFrame([ids.alias("context_id"), *columns]).select(
        "context_id",
        setting=pl.lit(setting.name),
        text=pl.concat_str(opening, pl.col("line").list.join("")),
        demonstrations="pair_id",
    )
