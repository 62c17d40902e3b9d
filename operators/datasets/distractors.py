"""Facts with their objects' entities, in the layout of the paper on distractors (docs/data.md).

Sentences that people wrote for single facts are clozes: they stand in `subjects` of their fact, and
the one template of every relation is `[X] [Y]`. Of a verbalisation the flawed sentence stands
first. Entities without an id are known by their label.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from factsweep.operators.datasets import knowledge_base as bases
from factsweep.operators.datasets.columns import Column, check_columns
from factsweep.operators.datasets.facts import (
    Facts,
    Relations,
    check_facts,
    manual_templates,
    number_templates,
    relation_table,
)
from factsweep.operators.datasets.facts import counts as counts_of_facts
from factsweep.operators.datasets.knowledge_base import KnowledgeBase, from_names, from_triples
from factsweep.operators.datasets.triples import facts_from_triples
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import columns, fit_schema, refuse, schema
from factsweep.operators.wording import join_list

_NEEDED = ("subject", "subject_label", "relation", "object", "object_label")
FACTS = schema("""
    sample text, subject text, subject_label text, subject_description text, relation text,
    object text, object_label text, object_description text, start text, end text, popularity float
""")
TEMPLATES = schema("relation_id text, text text")
_FACT = ("relation_id", "subject_id", "object_id")
Tables = Mapping[str, pl.DataFrame]


def _triples(tables: Tables) -> pl.DataFrame:
    """The facts of the files, as of TRIPLES and `details`."""
    return _table(tables, "facts", FACTS).select(
        *("start", "end", "popularity", "sample"),
        subject_id="subject",
        subjects=pl.concat_list("subject_label"),
        relation_id="relation",
        object_id="object",
        labels=pl.concat_list("object_label"),
    )


def facts_from_tables(tables: Tables, relation_labels: Relations = None) -> Facts:
    """The facts of the files, by their names up to the first full stop; a pair has all its objects.

    `relation_labels` names the relations to take; without it all with a template are taken,
    and their labels are their ids.

    Raises:
        InputError: a table or column is missing or unfit, or no fact has a template.
    """
    rows, templates = _triples(tables), _table(tables, "templates", TEMPLATES)
    base = _knowledge_base(tables, rows)
    if relation_labels is not None:
        rows = rows.filter(pl.col("relation_id").is_in(list(relation_labels)))
    rows = rows.join(templates, on="relation_id", how="semi", maintain_order="left")
    rows = rows.unique(_FACT, keep="first", maintain_order=True)
    details = rows.with_columns(pair_id=pl.format("{}.{}", "relation_id", "subject_id"))
    for entity, names in (("subject_id", "subjects"), ("object_id", "labels")):
        entities = base.entities.select(pl.col("entity_id").alias(entity), of_base="labels")
        rows = rows.join(entities, on=entity, how="left", maintain_order="left")
        rows = rows.with_columns(pl.coalesce("of_base", names).alias(names)).drop("of_base")
    texts = templates.with_columns(origin=pl.lit("manual"), group=pl.lit(0))
    facts = facts_from_triples(rows, texts, relation_labels)
    is_question = pl.col("text").str.contains("?", literal=True)
    styles = pl.when(is_question).then(pl.lit("question")).otherwise(pl.lit("statement"))
    return replace(
        facts,
        templates=facts.templates.with_columns(style=styles),
        extra_tables={
            "details": fit_schema(details, columns("details"), "details", ("human_score",))
        },
        knowledge_base=base,
    )


def counts(facts: Facts) -> dict[str, int]:
    """The size of the set and of its knowledge base."""
    assert facts.knowledge_base is not None
    sizes = counts_of_facts(facts)
    del sizes["derived_triples"]
    return sizes | bases.counts(facts.knowledge_base)


def figures(tables: Tables, facts: Facts) -> dict[str, int]:
    """The size of the set, and how many facts have no template and are not asked."""
    n_facts, sizes = _triples(tables).unique(_FACT).height, counts(facts)
    return {**sizes, "without_template": n_facts - sizes["unique_triples"]}


def _table(tables: Tables, name: str, schema: pl.Schema) -> pl.DataFrame:
    if name not in tables:
        raise InputError(f"the file {name}.* is missing; there are {join_list(sorted(tables))}.")
    optional = {*FACTS} - {*_NEEDED}
    columns = [Column(column, (dtype,), column not in optional) for column, dtype in schema.items()]
    check_columns(tables[name].lazy(), columns, f"{name}.* of the layout distractors")
    return fit_schema(tables[name], schema, name, optional=schema)


def _knowledge_base(tables: Tables, rows: pl.DataFrame) -> KnowledgeBase:
    names = [name for name in ("entities", "triples") if name in tables]
    if len(names) == 1:
        raise InputError(f"there is {names[0]}.parquet alone; entities and triples go together.")
    if names:
        return bases.check_knowledge_base(KnowledgeBase(tables["entities"], tables["triples"]))
    aliases = []
    if "aliases" in tables:
        ids = pl.concat([rows["subject_id"], rows["object_id"]]).unique().implode()
        aliases.append(tables["aliases"].filter(pl.col("entity_id").is_in(ids)))
    # A fact of the set is right at any time, even if it has an end.
    return bases.check_knowledge_base(from_triples(rows.drop("end"), *aliases))


TEMPLATE = "[X] [Y]"
VERBALISED = "flawed and corrected"  # the sample of facts that stand in two such sentences
PROBING = schema("""
    fact_id text, relation text, element text, sentence text, gold text, gold_corrected text,
    disambiguation text, human_score float
""")
VERBALISATIONS = schema("triples_raw text, triples text, verbalization text, correction text")
# A fact and its sentences; `subject` and `object` are the labels of its ends.
_FACTS = schema("""
    name text, subject_id text, subject text, relation_id text, object_id text, object text,
    sentences text[], human_score float, popularity float, sample text
""")


def read_probed(tables: Tables, relations: Relations = None) -> Facts:
    """The facts that people asked for, with the sentences that leave their object open, each once.

    The subject is the right answer of the sentences that leave the subject open.

    Raises:
        InputError: there is not one table, or it lacks a column.
    """
    rows = _single_table(tables, PROBING)
    label = pl.coalesce(pl.col("gold_corrected", "gold").replace("", None))
    is_id = pl.col("disambiguation").str.contains(r"^Q\d+$").fill_null(value=False)
    rows = rows.with_columns(label=label, id=pl.when(is_id).then("disambiguation").otherwise(label))

    def first(column: str, element: str) -> pl.Expr:
        """A column of the first sentence that leaves this end of its fact open."""
        return pl.col(column).filter(element=element).first()

    ends = {f"{part}_id": first("id", part) for part in ("subject", "object")}
    ends |= {part: first("label", part) for part in ("subject", "object")}
    object_sentences = pl.col("sentence").filter(element="object").str.strip_chars()
    facts = rows.group_by(name="fact_id", maintain_order=True).agg(
        **ends,
        relation_id=first("relation", "object"),
        sentences=object_sentences.unique(maintain_order=True),
        human_score=first("human_score", "object"),
    )
    half = (
        "fact {name} has no sentence that leaves its object or subject open; add one or drop the "
        "fact."
    )
    refuse(facts, {half: pl.any_horizontal(pl.col("subject", "object").is_null())}, ["name"])
    return _as_facts(fit_schema(facts, _FACTS, "facts", ("popularity", "sample")), relations)


def read_verbalised(tables: Tables, relations: Relations = None) -> Facts:
    """The facts with a flawed and a corrected sentence, which both end in the object.

    A sentence may have a full stop behind the object; the others are left out (`n_verbalised`).

    Raises:
        InputError: there is not one table, or it lacks a column.
    """
    return _as_facts(_parse_verbalisations(tables), relations)


def n_sentences(facts: Facts) -> dict[str, int]:
    """The size of such a set."""
    sizes = {"relations": facts.relations.height, "pairs": facts.pairs.height}
    return {**sizes, "sentences": int(facts.pairs["subjects"].list.len().sum())}


def n_verbalised(tables: Tables) -> dict[str, int]:
    """How many sentences are corrected, and how many of them are left out."""
    rows = _single_table(tables, VERBALISATIONS).drop_nulls("correction")
    return {
        "corrected": rows.height,
        "left_out": rows.height - _parse_verbalisations(tables).height,
    }


def _parse_verbalisations(tables: Tables) -> pl.DataFrame:
    facts = []
    rows = _single_table(tables, VERBALISATIONS).drop_nulls("correction")
    for number, row in enumerate(rows.iter_rows(named=True)):
        subject, relation, object_ = re.findall(r"'([^']*)'", row["triples_raw"])
        texts = (row["verbalization"], row["correction"])
        name, *parts = row["triples"].removeprefix("(").rpartition(", start=")[0].split(", ")
        # The object's label: the longest part of the triple, from a comma on, that ends all texts.
        for label in (", ".join(parts[start:]) for start in range(1, len(parts))):
            end = rf"\s+{re.escape(label)}\s*\.?$"
            if all(re.search(end, text) for text in texts):
                sentences = [re.sub(end, "", text) for text in texts]
                popularity = float(row["popularity"]) if row.get("popularity") else None
                fact = (f"{subject}.{number}", subject, name, relation, object_, label, sentences)
                facts.append((*fact, None, popularity, VERBALISED))
                break
    return pl.DataFrame(facts, _FACTS, orient="row")


def _single_table(tables: Tables, expected: pl.Schema) -> pl.DataFrame:
    if len(tables) != 1:
        raise InputError(f"there must be one table; there are {join_list(tables)}.")
    ((name, rows),) = tables.items()
    columns = [Column(column, (dtype,), required=True) for column, dtype in expected.items()]
    check_columns(rows.lazy(), columns, f"{name}.*")
    return rows


def _as_facts(facts: pl.DataFrame, relations: Relations) -> Facts:
    ids = facts["relation_id"].unique(maintain_order=True).to_list()
    facts = facts.with_columns(pair_id=pl.format("{}.{}", "relation_id", "name"))
    right = pl.struct("object_id", labels=pl.concat_list("object"))
    pairs = facts.select(
        "pair_id",
        "relation_id",
        "subject_id",
        subjects="sentences",
        objects=pl.concat_list(right),
        split=pl.lit(None, pl.String),
    )
    templates = number_templates(manual_templates((relation_id, TEMPLATE) for relation_id in ids))
    details = fit_schema(facts, columns("details"), "details", ("start", "end"))
    # The labels of the facts; their sentences are no names of an entity.
    ends = facts.select(
        entity_id=pl.concat_list("subject_id", "object_id"),
        labels=pl.concat_list("subject", "object"),
    )
    labels = ends.explode("entity_id", "labels").with_columns(pl.concat_list("labels"))
    triples = fit_schema(facts, columns("triples"), "triples", ("start", "end"))
    base = from_names(labels, triples.unique(maintain_order=True))
    return check_facts(
        Facts(relation_table(ids, relations), templates, pairs, {"details": details}, base)
    )
