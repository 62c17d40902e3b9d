"""Settings of BELIEF-ICL's prompts (section 3.1), their words, and their demonstrations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from factsweep.operators import seeds
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.chat import As, System, check, turn, variant_of

Context = Literal["zero-shot", "random", "relation", "template"]
Style = Literal["mask", "question"]
Templates = Literal["all", "manual", "question"]

MASK = "[MASK]"
MOST_SHOTS = 1_000


@dataclass(frozen=True)
class LanguageWords:
    """The words of a language (conf/language/); those of English are the papers', below.

    `mask` and `question` instruct, in the two styles of prompts. `asks` stands before a question,
    `answers` and `blank` before an answer; `ends` is behind an answer that is shown.
    Source: BELIEF-ICL, section 3.1 and appendix D.1 (English); the rest are translations.
    """

    language: str
    mask: str
    question: str
    asks: str
    answers: str
    blank: str = " "
    ends: str = "."


ENGLISH = LanguageWords(
    language="en",
    mask="Predict the [MASK] in each sentence in one word.",
    question="Answer each question in one word.",
    asks="Q: ",
    answers="A:",
)


@dataclass(frozen=True)
class Setting:
    """The setting of a prompt's text, apart from the facts and the seed.

    With scope `prompt` (the paper's words) demonstrations are drawn for each prompt, with `shared`
    once for all prompts of a (relation, template), so that an engine can reuse the prefix.

    With `as_` (in conf/: `as`) turns, the instruction is the system's turn, each demonstration a
    turn of the user and one of the assistant, and the question the last turn of the user. `system`
    precedes the instruction; if it is empty, the instruction begins the first turn of the user.
    With chat the whole text is one turn of the user.
    """

    context: Context
    shots: Annotated[int, Field(ge=0, le=MOST_SHOTS)]
    style: Style = "mask"
    templates: Templates = "all"
    scope: Literal["shared", "prompt"] = "shared"
    as_: As = None
    system: System = None
    words: LanguageWords = ENGLISH

    def __post_init__(self) -> None:
        """Refuse shots that do not fit the context, and reset fields that make no difference."""
        if (self.shots == 0) != (self.context == "zero-shot"):
            raise InputError(
                f"prompt.context={self.context} does not go with prompt.shots={self.shots}; "
                "zero-shot has 0 shots, every other context at least 1."
            )
        if not self.shots:
            object.__setattr__(self, "scope", "shared")
        if self.style == self.templates == "question":
            object.__setattr__(self, "templates", "all")
        check(self.as_, self.system)

    @property
    def name(self) -> str:
        """The setting's name in tables: `zero-shot`, `4-template`."""
        return "zero-shot" if self.context == "zero-shot" else f"{self.shots}-{self.context}"

    @property
    def variant(self) -> str | None:
        """The column `variant`: the differences from the defaults."""
        language = {} if self.words.language == "en" else {"language": self.words.language}
        return variant_of(self, "style", "templates", "scope", **language)

    @property
    def instruction(self) -> str:
        """The first line of every prompt (section 3.1 and appendix D.1)."""
        return (self.words.mask if self.style == "mask" else self.words.question) + "\n"

    @property
    def opening(self) -> pl.Expr:
        """The text before the demonstrations."""
        if self.as_ != "turns":
            return pl.lit(self.instruction)
        if self.system == "":
            return pl.lit("")
        parts = filter(None, (self.system, self.instruction.removesuffix("\n")))
        return turn("system", pl.lit("\n".join(parts)))


def eligible(templates: pl.DataFrame, setting: Setting) -> pl.DataFrame:
    """The templates that the setting uses, with the column `asked`: the sentence without [Y].

    In question style only question templates are used, and the trailing `[Y].` is dropped.
    """
    if setting.templates == "manual":
        templates = templates.filter(pl.col("origin") == "manual")
    if "question" in (setting.templates, setting.style):
        templates = templates.filter(pl.col("style") == "question")
    text = pl.col("text")
    if setting.style == "question":
        return templates.with_columns(asked=text.str.replace(r"\s*\[Y\]\s*[.。]?$", ""))
    return templates.with_columns(asked=text.str.replace_all("[Y]", MASK, literal=True))


def fill_sentence(sentence: pl.Expr, name: pl.Expr, forms: pl.Expr | None = None) -> pl.Expr:
    """The sentence on a subject by one of its names.

    `forms` has the gender (m or f; null: m) of the subject and of the object, for templates with
    words by gender; no `forms`: there are no such templates.

    >>> row = pl.DataFrame({"asked": "[X] est [X:né|née] à [MASK]", "name": "Eve", "forms": "fm"})
    >>> row.select(fill_sentence(pl.col("asked"), pl.col("name"), pl.col("forms"))).item()
    'Eve est née à [MASK]'
    """
    if forms is not None:
        for place, slot in enumerate("XY"):
            mark = rf"\[{slot}:([^\[\]|]*)\|([^\[\]|]*)\]"
            feminine, masculine = (sentence.str.replace_all(mark, f"${n}") for n in (2, 1))
            sentence = pl.when(forms.str.slice(place, 1) == "f").then(feminine).otherwise(masculine)
    return sentence.str.replace_all("[X]", name, literal=True)


def with_forms(rows: pl.DataFrame, facts: Facts) -> tuple[pl.DataFrame, pl.Expr | None]:
    """The rows (with pair_id) with the forms of their pairs, and their column; null: no forms."""
    forms = facts.extra_tables.get("forms")
    if forms is None:
        return rows, None
    forms = forms.select("pair_id", "forms")
    return rows.join(forms, on="pair_id", how="left", maintain_order="left"), pl.col("forms")


def query(setting: Setting, sentence: pl.Expr, *, is_first: bool) -> pl.Expr:
    """The open question; no trailing space: the answer's first token has one.

    Without a system turn, the first question of a chat begins with the instruction.
    """
    if setting.as_ != "turns":
        ask, answer = setting.words.asks, f"\n{setting.words.answers}"
        return pl.concat_str(pl.lit(ask), sentence, pl.lit(answer))
    if is_first and setting.system == "":
        sentence = pl.concat_str(pl.lit(setting.instruction), sentence)
    return turn("user", sentence)


def demonstration(
    setting: Setting, sentence: pl.Expr, label: pl.Expr, *, is_first: bool
) -> pl.Expr:
    """A question with its answer, two lines (appendix E) or two turns."""
    words = setting.words
    reply = turn("assistant", pl.concat_str(label, pl.lit(words.ends)))
    if setting.as_ != "turns":
        reply = pl.concat_str(pl.lit(words.blank), label, pl.lit(f"{words.ends}\n"))
    return pl.concat_str(query(setting, sentence, is_first=is_first), reply)


Indices = NDArray[np.int64]


class Draw(NamedTuple):
    """For each context and shot, a row of the pool's pairs and a row of its templates."""

    pairs: Indices
    templates: Indices


class RowSpan(NamedTuple):
    """The rows [start, start + length) of a table that is sorted by relation."""

    start: int
    length: int


@dataclass(frozen=True)
class Pool:
    """The facts that demonstrations are drawn from, each table sorted by id.

    pairs: pair_id, relation_id, name (the first), label (of the first object), and forms, if any.
    templates: template_id, relation_id, asked.
    """

    pairs: pl.DataFrame
    templates: pl.DataFrame
    pair_spans: dict[str, RowSpan]
    template_spans: dict[str, RowSpan]
    template_rows: dict[str, int]


def pool(facts: Facts, setting: Setting) -> Pool:
    """All facts as possible demonstrations of the setting."""
    pairs = facts.pairs.sort("relation_id", "pair_id").select(
        "pair_id",
        "relation_id",
        name=pl.col("subjects").list.first(),
        label=pl.col("objects").list.first().struct.field("labels").list.first(),
    )
    pairs, _ = with_forms(pairs, facts)
    templates = eligible(facts.templates, setting).sort("relation_id", "template_id")
    templates = templates.select("template_id", "relation_id", "asked")
    rows = {template: row for row, template in enumerate(templates["template_id"])}
    return Pool(pairs, templates, _spans(pairs), _spans(templates), rows)


def _spans(table: pl.DataFrame) -> dict[str, RowSpan]:
    spans = table.with_row_index().group_by("relation_id").agg(pl.col("index").min(), pl.len())
    return {relation: RowSpan(start, length) for relation, start, length in spans.iter_rows()}


def shared_draw(
    pool: Pool, setting: Setting, families: Sequence[str], relation_id: str, seed: int
) -> Draw:
    """The draw of families of prompts that share their demonstrations: (shots + 1 of each, shots).

    A family's row 0 has the first `shots` pairs; row 1 + j, for the pair in place j, the spare
    there.

    Raises:
        InputError: the relation has too few pairs.
    """
    span, n_pairs = _pairs_span(pool, setting, relation_id), setting.shots + 1
    random = [seeds.generator(seed, "demonstrations", setting.name, name) for name in families]
    places = [generator.choice(span.length, n_pairs, replace=False) for generator in random]
    pairs = span.start + np.reshape(places, (len(families), n_pairs))
    if setting.context == "template":
        rows = [pool.template_rows[family] for family in families]
        templates = np.broadcast_to(np.array(rows, dtype=np.int64)[:, None], pairs.shape)
    else:
        numbers = np.reshape([g.integers(2**63, size=n_pairs) for g in random], pairs.shape)
        templates = _random_templates(pool, setting, pairs, numbers)
    columns = np.tile(np.arange(setting.shots), (n_pairs, 1))
    np.fill_diagonal(columns[1:], setting.shots)
    return Draw(*(np.concatenate(rows[:, columns]) for rows in (pairs, templates)))


def fresh_draw(
    pool: Pool,
    setting: Setting,
    relation_id: str,
    pairs: Indices,
    templates: Indices,
    random: seeds.Keys,
) -> Draw:
    """A draw for every prompt: (prompts, shots).

    `pairs` and `templates` are the prompts' rows in the pool, `random` a number for each prompt.

    Raises:
        InputError: the relation has too few pairs.
    """
    span = _pairs_span(pool, setting, relation_id)
    places = seeds.distinct_indices(random, count=setting.shots, among=span.length - 1)
    # The prompt's own pair is not counted: places from it on are one row further down.
    drawn_pairs = span.start + places + (places >= (pairs - span.start)[:, None])
    if setting.context == "template":
        return Draw(drawn_pairs, np.broadcast_to(templates[:, None], drawn_pairs.shape))
    numbers = seeds.mix(seeds.mix(random)[:, None] + np.arange(setting.shots, dtype=np.uint64))
    return Draw(
        drawn_pairs, _random_templates(pool, setting, drawn_pairs, (numbers >> 1).astype(np.int64))
    )


def _pairs_span(pool: Pool, setting: Setting, relation_id: str) -> RowSpan:
    span = RowSpan(0, pool.pairs.height)
    if setting.context != "random":
        span = pool.pair_spans[relation_id]
    if span.length <= setting.shots:
        raise InputError(
            f"{setting.name} needs {setting.shots + 1} pairs to draw from, and relation "
            f"{relation_id} has {span.length}; ask with fewer shots (prompt=zero-shot "
            "has none) or give more pairs."
        )
    return span


def _random_templates(pool: Pool, setting: Setting, pairs: Indices, random: Indices) -> Indices:
    """For each pair, a template of its relation."""
    relations = pool.pairs["relation_id"].unique().sort()
    spans = [pool.template_spans.get(relation, RowSpan(0, 0)) for relation in relations]
    bare = [relation for relation, span in zip(relations, spans, strict=True) if not span.length]
    if bare:
        raise InputError(
            f"relation {bare[0]} has no template for prompt.style={setting.style}, "
            f"prompt.templates={setting.templates}; add one or leave the relation out."
        )
    # Both columns are sorted by relation, so the start of its span identifies a pair's relation.
    starts = np.array([pool.pair_spans[relation].start for relation in relations])
    relation = np.searchsorted(starts, pairs, side="right") - 1
    first, length = np.array(spans).T
    return np.asarray(first[relation] + random % length[relation], dtype=np.int64)


def contexts(
    pool: Pool, setting: Setting, ids: Sequence[str] | pl.Series, draw: Draw
) -> pl.DataFrame:
    """The table `contexts` of a draw: the instruction, then the demonstrations."""
    texts, pair_ids = [setting.opening], []
    shots, all_pairs = pl.DataFrame({"context_id": ids}), pool.pairs.drop("relation_id")
    for place, (pairs, templates) in enumerate(zip(draw.pairs.T, draw.templates.T, strict=True)):
        columns = all_pairs[pairs].with_columns(asked=pool.templates["asked"].gather(templates))
        shots = shots.hstack(columns.select(pl.all().name.suffix(str(place))))
        forms = pl.col(f"forms{place}") if "forms" in all_pairs.columns else None
        sentence = fill_sentence(pl.col(f"asked{place}"), pl.col(f"name{place}"), forms)
        texts.append(demonstration(setting, sentence, pl.col(f"label{place}"), is_first=place == 0))
        pair_ids.append(pl.col(f"pair_id{place}"))
    return shots.select(
        "context_id",
        setting=pl.lit(setting.name),
        text=pl.concat_str(texts),
        demonstrations=pl.concat_list(pair_ids) if pair_ids else pl.lit([], pl.List(pl.String)),
    )
