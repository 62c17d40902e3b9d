"""Expansion: a relation's facts × its templates × a setting → prompts and their contexts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators import seeds
from factsweep.operators.datasets.facts import Facts, template_number
from factsweep.operators.errors import InputError
from factsweep.operators.prompts import setting as settings
from factsweep.operators.prompts.setting import (
    Draw,
    Pool,
    Setting,
    eligible,
    fill_sentence,
    query,
    with_forms,
)
from factsweep.operators.schemas import empty

# The tables of prompts: all of them, one of each pair by rank, and those without a subject.
Source = Literal["prompts", "ranked", "content_free"]
# A text is identified by two 64-bit hashes of its context and query: among 10 M texts, two share
# both with a probability of 1e-25.
_TEXT = ("hash", "other_hash")
_WORD, _BETWEEN = r"([\p{L}\p{M}\p{N}]+)", r"[^\p{L}\p{M}\p{N}]+"
_CONTEXTS_AT_ONCE = 2**14
# Scripts without blanks between words: a name is found wherever it stands.
_WITHOUT_BLANKS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"


class RepeatedTexts:
    """The prompts so far, to find repeated texts."""

    def __init__(self) -> None:
        self._firsts = pl.DataFrame(schema=dict.fromkeys(_TEXT, pl.UInt64) | {"first": pl.String})

    def mark(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add `same_as`: the first prompt of the same text, null for the first itself."""
        # Hashing a struct of both takes twice as long.
        hashes = (pl.col("query").hash(n) ^ pl.col("context_id").hash(n + 2) for n in (0, 1))
        texts = rows.select(**dict(zip(_TEXT, hashes, strict=True)), first="prompt_id")
        earlier = self._firsts.join(texts, on="hash", how="semi")  # by one: five times faster
        firsts = pl.concat([earlier, texts]).unique(_TEXT, keep="first", maintain_order=True)
        first = texts.join(firsts, on=_TEXT, how="left", maintain_order="left")["first_right"]
        self._firsts = self._firsts.vstack(texts.filter(first == texts["first"]))
        return rows.with_columns(same_as=pl.when(pl.col("prompt_id") != first).then(first))


@dataclass(frozen=True)
class Expansion:
    """The tables of one relation: `prompts`, in prefix order, and the `contexts` that they use.

    `content_free` has further prompts of a masked model, `candidate_sets` the entities that are
    compared after a prompt. Consecutive prompts with one value in the column `together` are
    answered in one shard.
    """

    relation_id: str
    prompts: pl.DataFrame
    contexts: pl.DataFrame
    content_free: pl.DataFrame | None = None
    candidate_sets: pl.DataFrame | None = None
    together: str = "prompt_id"

    def __post_init__(self) -> None:
        """Add the columns that only other methods fill in, as nulls."""
        for name in ("prompts", "content_free"):
            if (rows := getattr(self, name)) is not None:
                complete = pl.concat([empty(name), rows], how="diagonal_relaxed")
                object.__setattr__(self, name, complete)

    def longest_texts(self, rows: pl.DataFrame) -> pl.Series:
        """The longest text that a model reads for each of some prompts of `of`."""
        return longest_text(rows, self.candidate_sets)

    def of(self, source: Source) -> pl.DataFrame:
        """The prompts of a source, each with its full text."""
        rows = self.prompts
        if source == "ranked":
            rows = rows.drop_nulls("calibration_rank")
        elif source == "content_free":
            rows = empty("content_free") if self.content_free is None else self.content_free
        return with_text(rows, self.contexts)


def with_text(prompts: pl.DataFrame, contexts: pl.DataFrame) -> pl.DataFrame:
    """The prompts with the column `text`: the context, then the query."""
    context = contexts.select("context_id", context="text")
    rows = prompts.join(context, on="context_id", how="left", maintain_order="left")
    return rows.with_columns(text=pl.concat_str("context", "query")).drop("context")


def longest_text(rows: pl.DataFrame, candidate_sets: pl.DataFrame | None) -> pl.Series:
    """The text of each prompt, with the longest label behind it (in bytes) where there are any."""
    if candidate_sets is None:
        return rows["text"]
    labels = candidate_sets.select("candidates_id", label="labels").explode("label").drop_nulls()
    longest = labels.group_by("candidates_id").agg(
        pl.col("label").sort_by(pl.col("label").str.len_bytes()).last()
    )
    rows = rows.join(longest, on="candidates_id", how="left", maintain_order="left")
    return rows.select(pl.concat_str("text", "label", separator=" ", ignore_nulls=True)).to_series()


def expand(facts: Facts, setting: Setting, *, seed: int) -> Iterator[Expansion]:
    """All prompts of a setting, a relation at a time, so that memory is bounded by a relation.

    They are sorted by (template, context, pair, name), so neighbours share long prefixes.

    Raises:
        InputError: a relation has no usable template, or too few pairs to demonstrate with.
    """
    pool = settings.pool(facts, setting)
    ranks = calibration_ranks(facts, setting, seed)
    repeated = RepeatedTexts()
    if setting.scope == "shared":  # else each prompt has a context, and they stand as the facts do
        templates, pairs = facts.templates.sort("template_id"), facts.pairs.sort("pair_id")
        facts = replace(facts, templates=templates, pairs=pairs)
    for relation_id in facts.relations["relation_id"]:
        of_relation = facts.of(relation_id)
        templates = eligible(of_relation.templates, setting).select("template_id", "asked")
        if templates.is_empty():
            raise InputError(
                f"relation {relation_id} has no template for prompt.style={setting.style}, "
                f"prompt.templates={setting.templates}; add one or leave the relation out."
            )
        question = query(setting, pl.col("query"), is_first=not setting.shots)
        rows = sentences(templates, of_relation).with_columns(query=question)
        rows, contexts = _with_contexts(rows, pool, setting, relation_id, seed)
        rows = rows.sort("template_id", "context_id", maintain_order=True)
        rows = repeated.mark(rows).join(ranks, on="prompt_id", how="left", maintain_order="left")
        yield Expansion(relation_id, rows, contexts)


def sentences(templates: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Each sentence (`asked`) with each name of each pair (columns of `cross_templates`)."""
    subjects, forms = with_forms(names(facts.pairs), facts)
    return cross_templates(
        templates, subjects, fill_sentence(pl.col("asked"), pl.col("name"), forms)
    )


def cross_templates(templates: pl.DataFrame, subjects: pl.DataFrame, text: pl.Expr) -> pl.DataFrame:
    """Each template with each name (`names`).

    Columns: prompt_id, pair_id, template_id, subject_index, query.
    """
    rows = templates.with_columns(number=template_number()).join(subjects, how="cross")
    return rows.select(prompt_id(), "pair_id", "template_id", "subject_index", query=text)


def prompt_id() -> pl.Expr:
    """The prompt of a pair, a template (`number`) and a name: `P36.Q142.000.0`."""
    return pl.format("{}.{}.{}", "pair_id", "number", "subject_index").alias("prompt_id")


def bare(context_id: str) -> pl.DataFrame:
    """The one context of prompts without any text before them."""
    row = {"context_id": context_id, "setting": context_id, "text": "", "demonstrations": []}
    return pl.DataFrame([row], schema=empty("contexts").schema)


def same_as(*text: str) -> pl.Expr:
    """The first prompt of the same text (columns), null for the first itself."""
    first = pl.col("prompt_id").first().over(text)
    return pl.when(first != pl.col("prompt_id")).then(first).alias("same_as")


def places(seed: int, purpose: str, ids: pl.Series) -> pl.Series:
    """Each id's place in a seeded order, from 0: a larger sample contains a smaller one."""
    random = pl.Series(seeds.keys(seed, purpose, ids), dtype=pl.UInt64)
    return random.rank("ordinal").cast(pl.UInt32) - 1


def names(pairs: pl.DataFrame) -> pl.DataFrame:
    """One row per name: pair_id, subject_index, name."""
    return pairs.select(
        "pair_id",
        pl.int_ranges(pl.col("subjects").list.len(), dtype=pl.UInt16).alias("subject_index"),
        pl.col("subjects").alias("name"),
    ).explode("subject_index", "name")


def _with_contexts(
    rows: pl.DataFrame, pool: Pool, setting: Setting, relation_id: str, seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    if setting.context == "zero-shot":
        empty_draw = np.empty((1, 0), dtype=np.int64)
        context = settings.contexts(pool, setting, ["zero-shot"], Draw(empty_draw, empty_draw))
        return rows.with_columns(context_id=pl.lit("zero-shot")), context
    if setting.scope == "shared":
        return _shared_contexts(rows, pool, setting, relation_id, seed)
    pairs = _row_in(pool.pairs["pair_id"], rows["pair_id"])
    templates = _row_in(pool.templates["template_id"], rows["template_id"])
    pair_keys = seeds.keys(seed, "demonstrations", pool.pairs["pair_id"])
    template_keys = seeds.keys(seed, setting.name, pool.templates["template_id"])
    names = rows["subject_index"].to_numpy().astype(np.uint64)
    random = seeds.mix(seeds.mix(pair_keys[pairs] ^ seeds.mix(template_keys[templates])) + names)
    draw = settings.fresh_draw(pool, setting, relation_id, pairs, templates, random)
    contexts = settings.contexts(pool, setting, rows["prompt_id"], draw)
    return rows.with_columns(context_id="prompt_id"), contexts


def _row_in(column: pl.Series, values: pl.Series) -> settings.Indices:
    table = pl.DataFrame({"value": column}).with_row_index()
    rows = values.to_frame("value").join(table, on="value", how="left", maintain_order="left")
    return rows["index"].to_numpy().astype(np.int64)


def _shared_contexts(
    rows: pl.DataFrame, pool: Pool, setting: Setting, relation_id: str, seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The contexts of a family are `family`, then `family~0`, `family~1` and so on.

    A prompt whose pair is demonstrated in place j takes context j, which has the spare pair there.
    """
    families = [relation_id if setting.context == "relation" else "random"]
    if setting.context == "template":
        families = rows["template_id"].unique().sort().to_list()
    draw = settings.shared_draw(pool, setting, families, relation_id, seed)
    suffixes = ["", *(f"~{place}" for place in range(setting.shots))]
    ids = [family + suffix for family in families for suffix in suffixes]
    owners = pl.Series("family", [family for family in families for _ in suffixes])
    contexts = settings.contexts(pool, setting, ids, draw).with_columns(owners)
    family = pl.col("template_id") if setting.context == "template" else pl.lit(families[0])
    place = pl.int_range(pl.len()).over("family").cast(pl.String)
    shots = contexts.filter(pl.col("context_id") == pl.col("family")).explode("demonstrations")
    name = pl.concat_str("family", pl.lit("~"), place)
    shots = shots.select("family", pair_id="demonstrations", context_id=name)
    rows = rows.with_columns(family=family)
    rows = rows.join(shots, on=["family", "pair_id"], how="left", maintain_order="left")
    rows = rows.with_columns(pl.coalesce("context_id", "family").alias("context_id"))
    used = contexts.join(rows.select("context_id").unique(), on="context_id", how="semi")
    return rows.drop("family"), used.drop("family").sort("context_id")


def calibration_ranks(facts: Facts, setting: Setting, seed: int) -> pl.DataFrame:
    """One prompt of each pair, with the pair's place in a seeded order of sampling."""
    templates = eligible(facts.templates, setting).sort("template_id")
    place = pl.int_range(pl.len()).over("relation_id")
    templates = templates.select("relation_id", number=template_number(), template=place)
    sizes = templates.group_by("relation_id").len("n_templates")
    pairs = facts.pairs.select("pair_id", "relation_id", n_names=pl.col("subjects").list.len())
    random = pl.Series("random", seeds.keys(seed, "calibration", pairs["pair_id"]), pl.UInt64)
    rank = random.rank("ordinal").cast(pl.UInt32) - 1
    rows = pairs.with_columns(random, calibration_rank=rank).join(sizes, on="relation_id")
    choice = pl.col("random") % (pl.col("n_names") * pl.col("n_templates")).cast(pl.UInt64)
    rows = rows.with_columns(
        template=(choice // pl.col("n_names")).cast(pl.Int64),
        subject_index=(choice % pl.col("n_names")).cast(pl.UInt16),
    )
    rows = rows.join(templates, on=["relation_id", "template"])
    return rows.select(prompt_id(), "calibration_rank")


class DemonstrationCounts(NamedTuple):
    """The numbers of prompts whose demonstrations show a right object, and their subject."""

    objects: int
    subjects: int


NOTHING = DemonstrationCounts(0, 0)


def count_demonstrations(expansion: Expansion, pairs: pl.DataFrame) -> DemonstrationCounts:
    """Count the prompts of a relation; `pairs` has all pairs that may be demonstrated.

    The papers ask such prompts like all others, and so does factsweep: a draw without them would
    show which answers are wrong.
    """
    tables = expansion.prompts, expansion.contexts, pairs
    return DemonstrationCounts(
        prompts_showing(*tables, "object").len(), prompts_showing(*tables, "subject").len()
    )


def prompts_showing(
    prompts: pl.DataFrame,
    contexts: pl.DataFrame,
    pairs: pl.DataFrame,
    part: Literal["object", "subject"],
) -> pl.Series:
    """The ids of the prompts whose demonstrations show a right object, or the subject.

    A demonstration shows a name of its pair if the context contains it, in the same case.
    """
    names = _names(pairs)
    all_names = pl.concat_list("object", "subject")
    # A relation may have a context for each prompt, and each names many entities.
    shown_names = []
    for some in (contexts.clear(), *contexts.iter_slices(_CONTEXTS_AT_ONCE)):
        shots = some.select("context_id", "text", pair_id="demonstrations").explode("pair_id")
        shots = shots.join(names, on="pair_id").select("context_id", "text", name=all_names)
        is_shown = pl.col("text").str.contains(pl.col("name"), literal=True)
        shown_names.append(shots.explode("name").filter(is_shown).drop("text"))
    visible = pl.concat(shown_names)
    if visible.is_empty():
        return prompts["prompt_id"].clear()
    of_pairs = (
        names.select("pair_id", name=part).explode("name").join(visible, on="name", how="semi")
    )
    # Prompts share contexts and pairs: each combination is looked up once.
    key = ["context_id", "pair_id"]
    combinations = prompts.select(key).unique().join(of_pairs, on="pair_id")
    matches = combinations.join(visible, on=["context_id", "name"], how="semi")
    return prompts.join(matches, on=key, how="semi")["prompt_id"]


def prompts_telling(prompts: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """The ids of the prompts whose query has the name of a right object, in whole words."""
    names = _names(pairs.join(prompts, on="pair_id", how="semi"))
    names = names.select("pair_id", name="object").explode("name")
    is_apart = ~pl.col("name").str.contains(_WITHOUT_BLANKS)
    first = pl.col("name").str.extract(_WORD).fill_null("")
    names = names.with_columns(first=first, words=_words("name"), is_apart=is_apart)
    # Few queries have the first word of a name: only these are split into words.
    rows = prompts.lazy().select("prompt_id", "pair_id", "query").join(names.lazy(), on="pair_id")
    near = rows.filter(pl.col("query").str.contains(pl.col("first"), literal=True)).collect()
    in_words = pl.when("is_apart").then(_words("query").str.contains(pl.col("words"), literal=True))
    anywhere = pl.col("query").str.contains(pl.col("name"), literal=True)
    return near.filter(in_words.otherwise(anywhere))["prompt_id"].unique()


def _words(column: str) -> pl.Expr:
    text = pl.col(column)
    return pl.format(" {} ", text.str.replace_all(_BETWEEN, " ").str.strip_chars())


def _names(pairs: pl.DataFrame) -> pl.DataFrame:
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").explode())
    return pairs.select("pair_id", object=labels, subject="subjects")
