"""A set like MyriadLAMA: facts, a knowledge base, names and templates → rows of its format.

Source: BELIEF, section 4.1, "Dataset construction", and appendix A.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import polars as pl

from factsweep.operators.construction.kamel import LABELS, add_reasons, count_left_out
from factsweep.operators.construction.paraphrase import MANUAL, N_PARAPHRASES, PARAPHRASES
from factsweep.operators.datasets import facts as facts_of
from factsweep.operators.datasets.facts import Facts, check_facts, number_templates
from factsweep.operators.datasets.kamel import is_literal
from factsweep.operators.datasets.myriadlama import rows_from_facts
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty, fit_schema, refuse, schema

# A literal (`operators.construction.kamel.TRIPLES`) is no object of such a set.
FACTS = schema("relation_id text, subject_id text, object_id text")
_NO_TEMPLATE = "relation_without_template"


class BuiltSet(NamedTuple):
    """The set, its omissions, and the paraphrases that it lacks.

    dropped: relation_id, unit (triple, pair), reason, count. missing: relation_id, n_manual,
    n_paraphrases, n_missing (paraphrases short of `n_paraphrases` a manual template).
    """

    facts: Facts
    dropped: pl.DataFrame
    missing: pl.DataFrame

    def rows(self) -> pl.DataFrame:
        """The rows of MyriadLAMA's format (docs/data.md)."""
        return rows_from_facts(self.facts)


def build(
    facts: pl.DataFrame,
    labels: pl.DataFrame,
    manual: pl.DataFrame,
    *,
    knowledge: pl.DataFrame | None = None,
    paraphrases: pl.DataFrame | None = None,
    n_paraphrases: int = N_PARAPHRASES,
    fits: Callable[[str], bool] | None = None,
    relation_labels: Mapping[str, str] | None = None,
) -> BuiltSet:
    """Make a set from facts (FACTS), names (LABELS, the main one first) and templates (MANUAL).

    A subject and relation of `facts` is a pair; those without a manual template are left out.
    A pair's objects are those of `facts`, then all others that `knowledge` (FACTS) has for it. The
    names of subjects and objects are their labels and aliases. An object stays if its main label
    `fits` (MyriadLAMA keeps single tokens of BERT). `paraphrases` (PARAPHRASES) follow their manual
    template; without them the set has the manual ones alone.

    Raises:
        InputError: a missing column, paraphrases of an unknown template, or no pair is left.
    """
    knowledge = facts.clear() if knowledge is None else knowledge
    paraphrases = PARAPHRASES.to_frame() if paraphrases is None else paraphrases
    facts, knowledge = fit_schema(facts, FACTS, "facts"), fit_schema(knowledge, FACTS, "knowledge")
    labels, manual = (
        fit_schema(labels, LABELS, "labels"),
        fit_schema(manual, MANUAL, "manual templates"),
    )
    paraphrases = fit_schema(paraphrases, PARAPHRASES, "paraphrases")
    templates = _templates(manual, paraphrases)
    of_pairs = knowledge.join(facts, on=list(FACTS)[:2], how="semi").sort(list(FACTS))
    triples = pl.concat([facts, of_pairs]).unique(maintain_order=True)
    triples = _with_reasons(_add_names(triples, labels), templates, fits)
    pair = ["relation_id", "subject_id"]
    used = triples.filter(pl.col("reason").is_null())
    pairs = used.group_by(pair, maintain_order=True).agg(
        pl.col("subjects").first(), objects=pl.struct("object_id", "labels")
    )
    if pairs.is_empty():
        raise InputError(
            "no fact has a manual template, a subject and an object with labels; "
            "give the labels and templates of the facts' relations."
        )
    # A pair is left out where none of its triples stayed.
    has_no_template = pl.col("reason").eq_missing(_NO_TEMPLATE).all()
    has_no_object = pl.col("reason").is_not_null().all()
    reasons = add_reasons(
        triples.group_by(pair).agg(template=has_no_template, objects=has_no_object),
        relation_without_template=pl.col("template"),
        no_object_left=pl.col("objects"),
    )
    pair_id = pl.format("{}.{}", *pair)
    pairs = pairs.with_columns(pair_id=pair_id, split=pl.lit(None, pl.String))
    of_set = templates.join(pairs, on="relation_id", how="semi", maintain_order="left")
    relations = facts_of.relation_table(
        of_set["relation_id"].unique(maintain_order=True), relation_labels
    )
    return BuiltSet(
        check_facts(Facts(relations, of_set, pairs.select(empty("pairs").columns))),
        count_left_out({"triple": triples, "pair": reasons}),
        count_missing(templates, n_paraphrases),
    )


def _with_reasons(
    triples: pl.DataFrame, templates: pl.DataFrame, fits: Callable[[str], bool] | None
) -> pl.DataFrame:
    label = pl.col("labels").list.first()
    labels = triples.select(label.unique()).to_series().drop_nulls()
    refused = [] if fits is None else [text for text in labels if not fits(text)]
    has_template = pl.col("relation_id").is_in(templates["relation_id"].unique().implode())
    return add_reasons(
        triples,
        relation_without_template=~has_template,
        subject_without_label=pl.col("subjects").is_null(),
        literal=is_literal(pl.col("object_id")),
        object_without_label=pl.col("labels").is_null(),
        object_does_not_fit=label.is_in(refused),
    )


def count_missing(templates: pl.DataFrame, n_paraphrases: int = N_PARAPHRASES) -> pl.DataFrame:
    """Count the paraphrases that each relation lacks: n_manual, n_paraphrases, n_missing.

    Columns in: relation_id, group, origin. Surplus paraphrases of one manual template do not make
    up for missing ones of another.
    """
    n = (pl.col("origin") == "paraphrase").sum().cast(pl.Int64)
    groups = templates.group_by("relation_id", "group", maintain_order=True).agg(n=n)
    return groups.group_by("relation_id", maintain_order=True).agg(
        n_manual=pl.len().cast(pl.Int64),
        n_paraphrases=pl.sum("n"),
        n_missing=(n_paraphrases - pl.col("n")).clip(lower_bound=0).sum(),
    )


def _templates(manual: pl.DataFrame, paraphrases: pl.DataFrame) -> pl.DataFrame:
    """The canonical templates: each manual one, then its paraphrases; each text once a relation."""
    key = ["relation_id", "template"]
    manual = manual.unique(maintain_order=True).with_row_index("place")
    manual = manual.with_columns(group=pl.int_range(pl.len()).over("relation_id"))
    paraphrases = paraphrases.join(manual, on=key, how="left", maintain_order="left")
    stray = (
        "paraphrases: relation {relation_id} has no manual template {template!r}; add it or drop "
        "its paraphrases."
    )
    refuse(paraphrases, {stray: pl.col("place").is_null()}, key)
    place = ["relation_id", "place", "group"]
    manual = manual.select(*place, text="template", origin=pl.lit("manual"))
    paraphrases = paraphrases.select(*place, text="paraphrase", origin=pl.lit("paraphrase"))
    texts = pl.concat([manual, paraphrases])
    distinct = texts.unique(["relation_id", "text"], keep="first", maintain_order=True)
    return number_templates(distinct.sort("place", maintain_order=True))


def _add_names(triples: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """The triples with the names of both ends: `subjects` and `labels`."""
    filled = pl.element().filter(pl.element().str.strip_chars() != "")
    first = labels.unique("entity_id", keep="first", maintain_order=True)
    names = first.select(
        "entity_id", pl.col("labels").list.eval(filled).list.unique(maintain_order=True)
    ).filter(pl.col("labels").list.len() > 0)
    subjects = names.rename({"entity_id": "subject_id", "labels": "subjects"})
    objects = names.rename({"entity_id": "object_id"})
    rows = triples.join(subjects, on="subject_id", how="left", maintain_order="left")
    return rows.join(objects, on="object_id", how="left", maintain_order="left")
