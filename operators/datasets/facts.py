"""What every reader returns: the facts of a benchmark as canonical tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import polars as pl

from factsweep.operators.datasets.knowledge_base import KnowledgeBase, from_triples, object_id
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty, refuse
from factsweep.operators.wording import safe_names

# The labels of the relations that are taken, by id; null: all are, and their labels are their ids.
Relations = Mapping[str, str] | None


class Values(Protocol):
    """Objects that answers are compared with as values: dates, numbers, quantities."""

    def add_value_keys(self, rows: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
        """Rows (pair_id, text, key) with the values of a text as its key, where it has any."""

    def label_keys(self, labels: pl.DataFrame) -> pl.DataFrame:
        """The values of labels (pair_id, text, key) as keys: a row per way to read one."""


@dataclass(frozen=True)
class Facts:
    """Facts and the templates that put them into words.

    Columns: `operators.schemas.SCHEMAS` under the same names. `extra_tables` are those a method
    needs in addition, by name; their rows belong to pairs (pair_id, relation_id), or to relations.
    `knowledge_base` is that of the whole set, whichever part the facts are. `typed` are the objects
    that answers are compared with as values, `refusals` the texts of answers that attempt none.
    `verdicts` has what each judge said (`matching.verdicts.VERDICTS`), by the judge's name.
    """

    relations: pl.DataFrame
    templates: pl.DataFrame
    pairs: pl.DataFrame
    extra_tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    knowledge_base: KnowledgeBase | None = None
    typed: Values | None = None
    refusals: tuple[str, ...] = ()
    verdicts: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the relations, by id."""
        return dict(self.relations.select("relation_id", "label").iter_rows())

    def of(self, relation_id: str) -> "Facts":
        """The facts of one relation."""
        is_own = pl.col("relation_id") == relation_id
        tables = (table.filter(is_own) for table in (self.relations, self.templates, self.pairs))
        relations, templates, pairs = tables
        extra = {name: table.filter(is_own) for name, table in self.extra_tables.items()}
        return Facts(relations, templates, pairs, extra, self.knowledge_base)


def counts(facts: Facts) -> dict[str, int]:
    """The figures of Table 1 of the MyriadLAMA paper, for any set of facts.

    `unique_triples` are subject, relation, object; `derived_triples` are names × object labels ×
    templates; `prompts` are names × templates, each summed over the pairs.
    """
    templates = facts.templates.group_by("relation_id").len("templates")
    names = pl.col("subjects").list.len().cast(pl.Int64)
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").list.len()).list.sum()
    sums = facts.pairs.join(templates, on="relation_id").select(
        pairs=pl.len(),
        unique_triples=pl.col("objects").list.len().cast(pl.Int64).sum(),
        derived_triples=(names * labels.cast(pl.Int64) * pl.col("templates")).sum(),
        prompts=(names * pl.col("templates")).sum(),
    )
    sizes = {"relations": facts.relations.height, "templates": facts.templates.height}
    return sizes | {name: int(value) for name, value in sums.row(0, named=True).items()}


def relation_table(relation_ids: Iterable[str], labels: Relations) -> pl.DataFrame:
    """The table of relations; one without a label has its id for one."""
    rows = [
        (relation_id, (labels or {}).get(relation_id, relation_id)) for relation_id in relation_ids
    ]
    return pl.DataFrame(rows, schema=empty("relations").schema, orient="row")


def check_facts(facts: Facts) -> Facts:
    """The facts, if every template and pair can be used.

    Raises:
        InputError: no pairs; a name that is not fit (`wording.names`); a template without [X] or
            [Y], of an unknown relation, or with the number of another; a pair without a subject or
            an object; a relation without templates or pairs.
    """
    if facts.pairs.is_empty():
        raise InputError("the data set has no subject-relation pairs; give one that has rows.")
    # Relations are files, the rest is joined by id.
    for relation_id in facts.relations["relation_id"]:
        safe_names.check_relation(relation_id)
    safe_names.check_apart(facts.relations["relation_id"], "the relations")
    for table, column in (("relations", "relation"), ("templates", "template"), ("pairs", "pair")):
        safe_names.check_ids(getattr(facts, table)[f"{column}_id"], f"the {column}")
    text, subjects, objects = pl.col("text"), pl.col("subjects"), pl.col("objects")
    in_relations, in_templates, in_pairs = (
        pl.col("relation_id").is_in(table["relation_id"].unique().implode())
        for table in (facts.relations, facts.templates, facts.pairs)
    )
    prefix = "template {template_id} ({text!r}) has no "
    of_templates = {
        prefix + "[X]; put [X] where the subject belongs.": ~text.str.contains("[X]", literal=True),
        prefix + "[Y]; put [Y] where the object belongs.": ~text.str.contains("[Y]", literal=True),
        "template {template_id} names the unknown relation {relation_id}; add the relation or "
        "correct the template.": ~in_relations,
        "template {template_id} ends as another of relation {relation_id} does, and their prompts "
        "would have the same ids; give it another number.": pl.struct(
            "relation_id", template_number()
        ).is_duplicated(),
    }
    of_pairs = {
        "pair {pair_id} has no subject name; add one or drop the pair.": subjects.list.len() == 0,
        "pair {pair_id} has no objects; add one or drop the pair.": objects.list.len() == 0,
        "relation {relation_id} has pairs but no templates; add one or drop its "
        "pairs.": ~in_templates,
    }
    lonely = "relation {relation_id} has no pairs; add one or drop the relation."
    refuse(facts.templates, of_templates, ["template_id", "text", "relation_id"])
    refuse(facts.pairs, of_pairs, ["pair_id", "relation_id"])
    refuse(facts.relations, {lonely: ~in_pairs}, ["relation_id"])
    return facts


_PLACE = pl.int_range(pl.len()).over("relation_id")


@dataclass(frozen=True)
class Slice:
    """Which part of a set to measure: the first of each, in the set's order; null takes all."""

    relations: tuple[str, ...] | None = None
    pairs_per_relation: int | None = None
    names_per_subject: int | None = None


def slice_facts(facts: Facts, part: Slice) -> Facts:
    """The chosen part of the facts.

    Raises:
        InputError: a relation that the set does not have, or a part without pairs or names.
    """
    unknown = sorted(set(part.relations or ()) - set(facts.relations["relation_id"]))
    if unknown:
        ids = ", ".join(facts.relations["relation_id"])
        raise InputError(f"benchmark.relations names {unknown[0]}; this set has {ids}.")
    keep = pl.lit(True) if part.relations is None else pl.col("relation_id").is_in(part.relations)
    relations, templates, pairs = (
        table.filter(keep) for table in (facts.relations, facts.templates, facts.pairs)
    )
    if part.pairs_per_relation is not None:
        pairs = pairs.filter(part.pairs_per_relation > _PLACE)
    if part.names_per_subject is not None:
        pairs = pairs.with_columns(pl.col("subjects").list.head(part.names_per_subject))
    chosen = select_extra_tables(facts, relations, pairs)
    return check_facts(Facts(relations, templates, pairs, chosen, facts.knowledge_base))


def select_extra_tables(
    facts: Facts, relations: pl.DataFrame, pairs: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """The rows of the extra tables that belong to some pairs, or to relations as a whole."""
    return {
        name: table.join(pairs, on="pair_id", how="semi", maintain_order="left")
        if "pair_id" in table.columns
        else table.join(relations, on="relation_id", how="semi", maintain_order="left")
        for name, table in facts.extra_tables.items()
    }


def add_right_labels(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The rows (which have pair_id) with `right`: the first label of each right object.

    >>> objects = [{"object_id": "Q1490", "labels": ["Tokyo", "Edo"]}]
    >>> pairs = pl.DataFrame({"pair_id": ["P190.Q90"], "objects": [objects]})
    >>> add_right_labels(pairs.select("pair_id"), pairs)["right"].to_list()
    [['Tokyo']]
    """
    first = pl.element().struct.field("labels").list.first()
    labels = pl.col("objects").list.eval(first).list.unique(maintain_order=True)
    return rows.join(pairs.select("pair_id", right=labels), on="pair_id", maintain_order="left")


def number_templates(texts: pl.DataFrame) -> pl.DataFrame:
    """The canonical templates of texts, in their order: each gets its number and its style.

    Columns in: relation_id, text, origin (manual, paraphrase), group (null: not known).

    >>> texts = ["[Y] is the capital of [X].", "What is the capital of [X]? [Y]."]
    >>> rows = {"relation_id": "P36", "text": texts, "origin": "manual", "group": [0, 1]}
    >>> number_templates(pl.DataFrame(rows)).select("template_id", "style").rows()
    [('P36.000', 'statement'), ('P36.001', 'question')]
    """
    index = _PLACE.cast(pl.String).str.zfill(3)
    return texts.select(
        template_id=pl.format("{}.{}", "relation_id", index),
        relation_id="relation_id",
        text="text",
        origin="origin",
        group=pl.col("group").cast(pl.UInt16),
        style=style(pl.col("text")),
    ).cast(empty("templates").schema)


def template_number() -> pl.Expr:
    """The template's number in its relation: `000` of `P36.000`."""
    return pl.col("template_id").str.split(".").list.last()


def manual_templates(texts: Iterable[tuple[str, str]]) -> pl.DataFrame:
    """Manual templates (relation, text), each a group: relation_id, text, origin, group."""
    columns = dict.fromkeys(("relation_id", "text"), pl.String)
    templates = pl.DataFrame(list(texts), columns, orient="row").unique(maintain_order=True)
    return templates.with_columns(origin=pl.lit("manual"), group=_PLACE)


def style(text: pl.Expr) -> pl.Expr:
    """How a template asks: `question` where it ends in `? [Y].`, else `statement`.

    >>> texts = pl.DataFrame({"text": ["Who made [X]? [Y]", "Is [X] by [Y]?"]})
    >>> texts.select(style(pl.col("text"))).to_series().to_list()
    ['question', 'statement']
    """
    is_question = text.str.contains(r"\?\s*\[Y\]\s*\.?$")
    return pl.when(is_question).then(pl.lit("question")).otherwise(pl.lit("statement"))


def knowledge_base_of(facts: Facts) -> KnowledgeBase:
    """The subjects and objects of the facts, and the facts as triples.

    A name's entity is its id; an object without an id is known by its first label. The types of an
    entity are the relations that it is an object of, and the objects of its own P31 and P279.
    """
    return from_triples(
        facts.pairs.explode("objects").unnest("objects").with_columns(object_id=object_id())
    )


def slice_single_objects(facts: Facts, part: Slice) -> Facts:
    """The chosen part as facts of one object, with `details` and a knowledge base.

    A pair of several objects becomes several pairs, each named after its object, too; one without
    an id is known by its first label. `details` has a row for each fact, with the subject's
    popularity where the set gives none. Without a knowledge base of the set, one is made of all its
    facts, whichever part is chosen.

    Raises:
        InputError: a relation that the set does not have, or a part without pairs or names.
    """
    base = facts.knowledge_base or knowledge_base_of(facts)
    facts = slice_facts(replace(facts, knowledge_base=base), part)
    several = pl.col("objects").list.len() > 1
    rows = facts.pairs.with_columns(whole="pair_id", several=several)
    rows = rows.explode("objects").unnest("objects").with_columns(object_id=object_id())
    pair_id = pl.format("{}.{}", "pair_id", "object_id")
    rows = rows.unique(["whole", "object_id"], keep="first", maintain_order=True).with_columns(
        pair_id=pl.when("several").then(pair_id).otherwise("pair_id"),
        objects=pl.concat_list(pl.struct("object_id", "labels")),
    )
    new_names = rows.select("whole", named="pair_id")
    extra = {
        name: table.join(new_names, left_on="pair_id", right_on="whole", maintain_order="left")
        .with_columns(pair_id="named")
        .select(table.columns)
        for name, table in facts.extra_tables.items()
        if name != "details"
    }
    own_details = facts.extra_tables.get("details", empty("details")).drop("relation_id")
    own_details = own_details.rename({"pair_id": "whole"})
    subjects = base.entities.select(subject_id="entity_id", of_subject="popularity")
    details = (
        rows.select("pair_id", "whole", "relation_id", "subject_id", "object_id")
        .join(own_details, on=["whole", "object_id"], how="left", maintain_order="left")
        .join(subjects, on="subject_id", how="left", maintain_order="left")
        .with_columns(popularity=pl.coalesce("popularity", "of_subject"))
    )
    extra["details"] = details.select(empty("details").columns)
    return replace(facts, pairs=rows.select(facts.pairs.columns), extra_tables=extra)


Unseen = Literal["keep", "remove", "refuse"]
_CHARACTER = r"[\p{Cc}\p{Cf}\p{Co}\p{Default_Ignorable_Code_Point}--[\u{200c}\u{200d}]]"


def treat_invisible(facts: Facts, treatment: Unseen) -> Facts:
    """The facts with invisible characters kept or removed.

    These are Unicode's Cc, Cf, Cs, Co and default ignorable characters, except for joiners of
    letters, with which Persian and Hindi are written.

    Raises:
        InputError: there are some and `treatment` is refuse, or a text has no other characters.
    """
    if treatment == "keep" or (texts := find_invisible(facts)).is_empty():
        return facts
    if treatment == "refuse":
        hidden = (
            "{where}: {text!a} holds an invisible character; take it out, or let it be "
            "removed: benchmark.unseen=remove."
        )
        refuse(texts, {hidden: pl.col("text").is_not_null()}, ["where", "text"])
    templates = facts.templates.with_columns(strip_invisible(pl.col("text")))
    text, of_object = strip_invisible(pl.element()), pl.element().struct.field("labels")
    filled = text.filter(text.str.strip_chars() != "")
    names = pl.col("subjects").list.eval(filled)
    labels = pl.element().struct.with_fields(labels=of_object.list.eval(filled))
    objects = pl.col("objects").list.eval(labels)
    objects = objects.list.eval(pl.element().filter(of_object.list.len() > 0))
    pairs = facts.pairs.with_columns(subjects=names, objects=objects)
    return check_facts(replace(facts, templates=templates, pairs=pairs))


def strip_invisible(text: pl.Expr) -> pl.Expr:
    """A text without invisible characters."""
    return text.str.replace_all(_CHARACTER, "")


def find_invisible(facts: Facts) -> pl.DataFrame:
    """The texts that hold such a character, each with where it stands: where, text."""
    of_template = pl.format("template {}", "template_id").alias("where")
    of_pair = pl.format("pair {}", "pair_id").alias("where")
    labels = pl.col("objects").struct.field("labels")
    texts = (
        facts.templates.select(of_template, "text"),
        facts.pairs.select(of_pair, text="subjects").explode("text"),
        facts.pairs.explode("objects").select(of_pair, text=labels).explode("text"),
    )
    return pl.concat(texts).filter(pl.col("text").str.contains(_CHARACTER))
