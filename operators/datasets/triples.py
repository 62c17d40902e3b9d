r"""Triples with ids and names → the canonical tables; mLAMA's, ParaRel's and X-FACTR's files.

mLAMA's layout (Kassner, Dufter and Schütze 2021), one folder per language:

    de/templates.jsonl  {"relation": "P19", "template": "[X] wurde in [Y] geboren."}
    de/P19.jsonl        {"sub_uri": "Q42", "sub_label": "…", "obj_uri": "Q84", "obj_label": "…"}

A row without ids, as those of Google-RE, is known by its labels: such facts are found again in
another language only where the labels are the same.

ParaRel's layout (TACL 2021; the facts are those of LAMA's T-REx):

    patterns/P19.jsonl  {"pattern": "[X] was born in [Y].", "tense": "past"}   one template per line
    facts/P19.jsonl     {"sub_label": "Henry Heras", "obj_label": "Barcelona"} one triple per line

There are no ids: a subject is its label, and so is an object. Two subjects of one label are one
here, with the objects of both. In both layouts other fields are ignored, and there are no aliases.

X-FACTR's layout (Jiang et al. 2020; github.com/jzbjyb/X-FACTR), for the language fr:

    facts/P19.jsonl           {"sub_uri": "Q42", "sub_label": "…", "obj_uri": "Q350", …}
    languages/templates.csv   pid, relation, and a column per language
    languages/labels.fr.tsv   an id and its label (not of English, whose labels the facts have)
    languages/aliases.fr.tsv  an id and other names, tab by tab
    languages/gender.tsv      an id and male, female or none

A fact is taken where subject and object have a label in the language. Where there are no labels at
all (Chinese) the first alias is the name. Templates have grammar in their slots:

| in the files | here |
|---|---|
| `[né;X-Gender=MASC\|née;X-Gender=FEM]` | the form of X's gender |
| `[miembro;X-Number=SG\|…;X-Number=PL]` | the singular: the files say no entity's number |
| `[ART;X-Gender]`, `[DEF;Y]` (Spanish) | un or una, el or la, by gender |
| `[ARTIND;Y]` (French) | un or une, by gender |
| `[ARTDEF;X]`, `[PREPDEF;X]`, `[PREPDEF-à;X]`, `[PREPLOC;X]` (French) | nothing, de, à, en |
| `[Y.Acc]` | [Y]: entities stay as they are |
| other articles | nothing |

The original takes every entity as a proper name, which decides the French articles as above, unless
its class is a country or a city; the classes are not in these files. Where a gender is "none" it
guesses by the ending of the name: here the ending counts in Spanish, and French is masculine.
"""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts, Relations, checked, manual, named, numbered
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
    asked = triples.join(templates, on="relation_id", how="semi", maintain_order="left")
    pairs = asked.group_by("relation_id", "subject_id", maintain_order=True).agg(
        pl.col("subjects").first(),
        objects=pl.struct("object_id", "labels").unique(maintain_order=True),
    )
    pair_id = pl.format("{}.{}", "relation_id", "subject_id")
    pairs = pairs.with_columns(pair_id=pair_id, split=pl.lit(None, pl.String))
    relations = named(pairs["relation_id"].unique(maintain_order=True), labels)
    ordered = relations.join(templates, on="relation_id", maintain_order="left_right")
    schema = empty("pairs").schema
    pairs = pairs.select(schema.names()).cast(schema)
    return checked(Facts(relations, numbered(ordered), pairs))


def mlama(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of one language's files: their path in the set → their content.

    Raises:
        InputError: files of several languages, no template, or what `checked` refuses.
    """
    folders = sorted({PurePosixPath(each).parent.name for each in files})
    if len(folders) > 1:
        raise InputError(
            f"the set is of {', '.join(folders)}; give one by benchmark.language or benchmark.path."
        )
    templates: dict[str, str] = {}
    for _, row, where in _rows(files, lambda path: path.name == _TEMPLATES):
        templates.setdefault(text(row, "relation", where), text(row, "template", where))
    triples = [_triple(*each) for each in _rows(files, lambda path: path.name != _TEMPLATES)]
    if not templates:
        raise InputError(f"the set has no template; copy the authors' {_TEMPLATES}.")
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, manual(templates.items()), relation_labels)


def pararel(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of ParaRel's files: their path in the set → their content.

    Every pattern is a manual template, with a group of its own. Relations that have no patterns,
    or no facts, are left out. A relation that `relation_labels` does not name has its id for one.

    Raises:
        InputError: an unfit line, or what `checked` refuses.
    """
    patterns = _rows(files, lambda path: path.match("patterns/*.jsonl"))
    texts = [(relation, text(row, "pattern", where)) for relation, row, where in patterns]
    facts = _rows(files, lambda path: path.match("facts/*.jsonl"))
    triples = [_triple(*each, ids=()) for each in facts]
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, manual(texts), relation_labels)


def left_out(files: Mapping[str, str], facts: Facts) -> dict[str, int]:
    """How many relations have a file and are none of the facts'; nothing if none is."""
    there = {PurePosixPath(name).stem for name in files} - {PurePosixPath(_TEMPLATES).stem}
    n = len(there - {*facts.relations["relation_id"]})
    return {"relations_left_out": n} if n else {}


def _rows(
    files: Mapping[str, str], holds: Callable[[PurePosixPath], bool]
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The rows of some files, in the order of their paths: their relation, they, and where."""
    for path, content in sorted((PurePosixPath(name), each) for name, each in files.items()):
        if holds(path):
            yield from ((path.stem, row, where) for where, row in rows(str(path), content))


def _triple(
    relation: str, row: Mapping[str, Any], where: str, ids: Collection[str] = _IDS
) -> tuple[object, ...]:
    """A row as one of TRIPLES, known by its labels where it has no ids."""
    labels = [text(row, key, where) for key in ("sub_label", "obj_label")]
    known = [text(row, key, where) if row.get(key) else None for key in ids]
    subject, obj = known or labels
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
_SPACES = re.compile(r"\s{2,}")


def xfactr(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of one language's files: their last two path parts → their content.

    `further` has `forms` where a template has forms by gender: those of X and of Y for each pair
    (m or f). Y's are those of the first right object, as in the original, and so tell its gender.

    Raises:
        InputError: no or several languages, no templates of it, or an unfit line.
    """
    by_name = {PurePosixPath(name).name: content for name, content in files.items()}
    language = language_of(by_name)
    aliases, gender = (_names(by_name, f"{n}.tsv") for n in (f"aliases.{language}", "gender"))
    own_labels = _names(by_name, f"labels.{language}.tsv")
    found: list[tuple[object, ...]] = []
    for name in (each for each in sorted(files) if each.endswith(".jsonl")):
        for where, row in rows(name, files[name]):
            ids = [text(row, key, where) for key in ("sub_uri", "obj_uri")]
            if language == "en":
                said = [text(row, key, where) for key in ("sub_label", "obj_label")]
            else:
                said = [next(iter((own_labels or aliases).get(each, ())), "") for each in ids]
            if all(said):
                labels = ([each, *aliases.get(a, ())] for each, a in zip(said, ids, strict=True))
                named = [list(dict.fromkeys(each)) for each in labels]
                found.append((PurePosixPath(name).stem, ids[0], named[0], ids[1], named[1]))
    triples = pl.DataFrame(found, TRIPLES, orient="row")
    if triples.is_empty():
        raise InputError(f"no fact has labels in {language}; copy the labels of that language.")
    texts = manual(templates(by_name, language).items())
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
    return replace(facts, further={"forms": table.cast(empty("forms").schema)})


def language_of(names: Mapping[str, str]) -> str:
    """The language of the files of aliases.

    Raises:
        InputError: there is none, or there are several.

    >>> language_of({"aliases.fr.tsv": "", "labels.fr.tsv": "", "gender.tsv": ""})
    'fr'
    """
    found = sorted({n.split(".")[1] for n in names if re.fullmatch(r"aliases\.[\w-]+\.tsv", n)})
    if len(found) != 1:
        raise InputError(
            f"the set has aliases of {', '.join(found) or 'no language'}; benchmark.language takes "
            "one, aliases.<language>.tsv."
        )
    return found[0]


def templates(names: Mapping[str, str], language: str) -> dict[str, str]:
    """The templates of a language by relation, their marks as `plain` writes them.

    Raises:
        InputError: there is no such file, or no column of the language.
    """
    table = csv.DictReader(io.StringIO(names.get("templates.csv", "")))
    columns = list(table.fieldnames or ())
    if "pid" not in columns or language not in columns:
        raise InputError(
            f"templates.csv must have the columns pid and {language}, and has "
            f"{', '.join(columns) or 'none'}; copy the authors' file."
        )
    said = {row["pid"]: row[language] for row in table}
    return {relation: plain(each, language) for relation, each in said.items() if each}


def plain(template: str, language: str) -> str:
    """A template with what our prompts fill in: [X], [Y], and forms by gender ([X:né|née])."""
    return _SPACES.sub(" ", _MARK.sub(lambda found: _mark(found[1], language), template)).strip()


def _mark(mark: str, language: str) -> str:
    if slot := _SLOT.fullmatch(mark):
        return f"[{slot[1]}]"
    forms = [each.partition(";") for each in mark.split("|")]
    head, _, tail = forms[0]
    of = tail[:1]
    if len(forms) > 1:
        return f"[{of}:{head}|{forms[1][0]}]" if "Gender" in tail else head
    if pair := _BY_GENDER.get((language, head)):
        return f"[{of}:{'|'.join(pair)}]"
    word = head.partition(".")[0]
    if (language, head) in _OF_PROPER_NAMES or word.isupper():
        return _OF_PROPER_NAMES.get((language, head), "")
    return word  # a word of which the original makes a form: as it is


def _form(entity: str, label: str, gender: Names, language: str) -> str:
    said = next(iter(gender.get(entity, ())), "none")
    if said != "none":
        return said[0]
    ending = _FEMININE.get(language)
    return "f" if ending and ending.search(label.partition(" ")[0]) else "m"


def _names(files: Mapping[str, str], name: str) -> dict[str, list[str]]:
    """The names of each id, tab by tab."""
    lines = (line.rstrip("\r").split("\t") for line in files.get(name, "").split("\n"))
    return {entity: [each for each in names if each] for entity, *names in lines if entity}
