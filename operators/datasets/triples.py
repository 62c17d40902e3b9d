"""Triples → the canonical tables; mLAMA's, ParaRel's and X-FACTR's files (docs/data.md).

In ParaRel's files a subject is its label, and so is an object: two subjects of one label are one
here, with the objects of both. A row of mLAMA without ids is known by its labels.
"""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import (
    Facts,
    Relations,
    check_facts,
    manual_templates,
    number_templates,
    relation_table,
)
from factsweep.operators.datasets.table_files import rows, text
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty, schema

_TEMPLATES = "templates.jsonl"
_IDS = ("sub_uri", "obj_uri")
TRIPLES = schema(
    "relation_id text, subject_id text, subjects text[], object_id text, labels text[]"
)


def facts_from_triples(triples: pl.DataFrame, templates: pl.DataFrame, labels: Relations) -> Facts:
    """The facts of triples (columns: TRIPLES) in templates (relation_id, text, origin, group).

    A subject's triples of one relation are one pair with several objects. Relations without a
    template or without triples are left out; a label that is not given is the relation's id.
    """
    triples_asked = triples.join(templates, on="relation_id", how="semi", maintain_order="left")
    pairs = triples_asked.group_by("relation_id", "subject_id", maintain_order=True).agg(
        pl.col("subjects").first(),
        objects=pl.struct("object_id", "labels").unique(maintain_order=True),
    )
    pair_id = pl.format("{}.{}", "relation_id", "subject_id")
    pairs = pairs.with_columns(pair_id=pair_id, split=pl.lit(None, pl.String))
    relations = relation_table(pairs["relation_id"].unique(maintain_order=True), labels)
    ordered = relations.join(templates, on="relation_id", maintain_order="left_right")
    schema = empty("pairs").schema
    pairs = pairs.select(schema.names()).cast(schema)
    return check_facts(Facts(relations, number_templates(ordered), pairs))


def mlama(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of one language's files: their path in the set → their content.

    Raises:
        InputError: files of several languages, no template, or a flaw that `check_facts` refuses.
    """
    folders = sorted({PurePosixPath(name).parent.name for name in files})
    if len(folders) > 1:
        raise InputError(
            f"the set is of {', '.join(folders)}; give one by benchmark.language or benchmark.path."
        )
    templates: dict[str, str] = {}
    for _, row, place in _rows(files, lambda path: path.name == _TEMPLATES):
        templates.setdefault(text(row, "relation", place), text(row, "template", place))
    triples = [_triple(*row) for row in _rows(files, lambda path: path.name != _TEMPLATES)]
    if not templates:
        raise InputError(f"the set has no template; copy the authors' {_TEMPLATES}.")
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, manual_templates(templates.items()), relation_labels)


def pararel(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of ParaRel's files: their path in the set → their content.

    Every pattern is a manual template, with a group of its own. Relations that have no patterns,
    or no facts, are left out. A relation that `relation_labels` does not name has its id for one.

    Raises:
        InputError: an unfit line, or a flaw that `check_facts` refuses.
    """
    patterns = _rows(files, lambda path: path.match("patterns/*.jsonl"))
    texts = [(relation, text(row, "pattern", place)) for relation, row, place in patterns]
    facts = _rows(files, lambda path: path.match("facts/*.jsonl"))
    triples = [_triple(*row, ids=()) for row in facts]
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, manual_templates(texts), relation_labels)


def count_left_out(files: Mapping[str, str], facts: Facts) -> dict[str, int]:
    """How many relations have a file and are none of the facts'; nothing if none is."""
    relations = {PurePosixPath(name).stem for name in files} - {PurePosixPath(_TEMPLATES).stem}
    n = len(relations - {*facts.relations["relation_id"]})
    return {"relations_left_out": n} if n else {}


def _rows(
    files: Mapping[str, str], holds: Callable[[PurePosixPath], bool]
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The rows of some files, in the order of their paths: relation, row, and its place."""
    for path, content in sorted((PurePosixPath(n), content) for n, content in files.items()):
        if holds(path):
            yield from ((path.stem, row, place) for place, row in rows(str(path), content))


def _triple(
    relation: str, row: Mapping[str, Any], place: str, ids: Collection[str] = _IDS
) -> tuple[object, ...]:
    """A row as one of TRIPLES, known by its labels where it has no ids."""
    labels = [text(row, key, place) for key in ("sub_label", "obj_label")]
    entities = [text(row, key, place) if row.get(key) else None for key in ids]
    subject, obj = entities or labels
    return relation, subject or labels[0], labels[:1], obj or labels[1], labels[1:]


Names = Mapping[str, Sequence[str]]
_MARK = re.compile(r"\[([^\[\]]+)\]")
_SLOT = re.compile(r"([XY])(?:\.\w+)*")
_BY_GENDER = {  # language, kind of the article: masculine, feminine
    ("es", "ART"): ("un", "una"),
    ("es", "DEF"): ("el", "la"),
    ("fr", "ARTIND"): ("un", "une"),
}
_OF_PROPER_NAMES = {("fr", "PREPDEF"): "de", ("fr", "PREPDEF-à"): "à", ("fr", "PREPLOC"): "en"}
_FEMININE = {"es": re.compile(r"(a|[cs]ión|[dt]ad|umbre)$")}


def xfactr(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of one language's files: their last two path parts → their content.

    A fact is taken where subject and object have a label in the language; where there are no labels
    at all (Chinese), the first alias is the name. `extra_tables` has `forms` where a template has
    forms by gender: those of X and Y for each pair (m or f). Y's are of the first right object,
    as in the original, and so reveal its gender.

    Raises:
        InputError: no or several languages, no templates of it, or an unfit line.
    """
    by_name = {PurePosixPath(name).name: content for name, content in files.items()}
    language = _language(by_name)
    aliases, gender = (_names(by_name, f"{n}.tsv") for n in (f"aliases.{language}", "gender"))
    own_labels = _names(by_name, f"labels.{language}.tsv")
    labelled: list[tuple[object, ...]] = []
    for relation, row, place in _rows(files, lambda path: path.suffix == ".jsonl"):
        subject, obj = (text(row, key, place) for key in _IDS)
        if language == "en":
            labels = [text(row, key, place) for key in ("sub_label", "obj_label")]
        else:
            labels = [next(iter((own_labels or aliases).get(q, ())), "") for q in (subject, obj)]
        if all(labels):
            subject_names = list(dict.fromkeys([labels[0], *aliases.get(subject, ())]))
            object_names = list(dict.fromkeys([labels[1], *aliases.get(obj, ())]))
            labelled.append((relation, subject, subject_names, obj, object_names))
    triples = pl.DataFrame(labelled, TRIPLES, orient="row")
    if triples.is_empty():
        raise InputError(f"no fact has labels in {language}; copy the labels of that language.")
    texts = manual_templates(_templates(by_name, language).items())
    facts = facts_from_triples(triples, texts, relation_labels)
    if not facts.templates["text"].str.contains(r"\[[XY]:").any():
        return facts
    forms = [
        _form(subject, names[0], gender, language)
        + _form(objects[0]["object_id"], objects[0]["labels"][0], gender, language)
        for subject, names, objects in facts.pairs.select(
            "subject_id", "subjects", "objects"
        ).iter_rows()
    ]
    table = facts.pairs.select("pair_id", "relation_id", pl.Series("forms", forms, pl.String))
    return replace(facts, extra_tables={"forms": table.cast(empty("forms").schema)})


def _language(names: Mapping[str, str]) -> str:
    languages = sorted({n.split(".")[1] for n in names if re.fullmatch(r"aliases\.[\w-]+\.tsv", n)})
    if len(languages) != 1:
        raise InputError(
            f"the set has aliases of {', '.join(languages) or 'no language'}; benchmark.language "
            "takes one, aliases.<language>.tsv."
        )
    return languages[0]


def _templates(names: Mapping[str, str], language: str) -> dict[str, str]:
    table = csv.DictReader(io.StringIO(names.get("templates.csv", "")))
    columns = list(table.fieldnames or ())
    if "pid" not in columns or language not in columns:
        raise InputError(
            f"templates.csv must have the columns pid and {language}, and has "
            f"{', '.join(columns) or 'none'}; copy the authors' file."
        )
    return {row["pid"]: plain_template(row[language], language) for row in table if row[language]}


def plain_template(template: str, language: str) -> str:
    """A template with the slots that our prompts fill: [X], [Y], and forms by gender ([X:né|née]).

    The original takes every entity as a proper name, which decides the French articles, unless its
    class is a country or a city; the classes are not in the files. Of a number, whose marks the
    files do not resolve, the singular is taken. Cases are dropped: [Y.Acc] is [Y].
    """
    marked = _MARK.sub(lambda mark: _mark(mark[1], language), template)
    return re.sub(r"\s{2,}", " ", marked).strip()


def _mark(mark: str, language: str) -> str:
    if slot := _SLOT.fullmatch(mark):
        return f"[{slot[1]}]"
    forms = [form.partition(";") for form in mark.split("|")]
    head, _, tail = forms[0]
    slot_letter = tail[:1]
    if len(forms) > 1:
        return f"[{slot_letter}:{head}|{forms[1][0]}]" if "Gender" in tail else head
    if pair := _BY_GENDER.get((language, head)):
        return f"[{slot_letter}:{'|'.join(pair)}]"
    word = head.partition(".")[0]
    if (language, head) in _OF_PROPER_NAMES or word.isupper():
        return _OF_PROPER_NAMES.get((language, head), "")
    return word  # the original inflects it


def _form(entity: str, label: str, gender: Names, language: str) -> str:
    """The gender, m or f; an unknown one goes by the ending of the name in Spanish, or is m."""
    known_gender = next(iter(gender.get(entity, ())), "none")
    if known_gender != "none":
        return known_gender[0]
    ending = _FEMININE.get(language)
    return "f" if ending and ending.search(label.partition(" ")[0]) else "m"


def _names(files: Mapping[str, str], name: str) -> dict[str, list[str]]:
    lines = (line.rstrip("\r").split("\t") for line in files.get(name, "").split("\n"))
    return {entity: [*filter(None, names)] for entity, *names in lines if entity}
