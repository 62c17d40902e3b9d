r"""X-FACTR's files of one language → the canonical tables.

The layout (Jiang et al. 2020; github.com/jzbjyb/X-FACTR), for the language fr:

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
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import polars as pl

from factsweep.operators.datasets.facts import Facts, Relations, manual
from factsweep.operators.datasets.json_texts import rows, text
from factsweep.operators.datasets.triples import TRIPLES, facts_from_triples
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty

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


def facts_from_files(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
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
    return Facts(facts.relations, facts.templates, facts.pairs, _forms(facts, gender, language))


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
    """A template with what our prompts fill in: [X], [Y], and forms by gender ([X:né|née]).

    >>> plain("[X] est [né;X-Gender=MASC|née;X-Gender=FEM] [PREPLOC;Y] [Y] .", "fr")
    '[X] est [X:né|née] en [Y] .'
    >>> plain("[X] [toca;X-Number=SG|tocan;X-Number=PL] [DEF;Y] [Y.Acc] .", "es")
    '[X] toca [Y:el|la] [Y] .'
    """
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


def _forms(facts: Facts, gender: Names, language: str) -> dict[str, pl.DataFrame]:
    if not facts.templates["text"].str.contains(r"\[[XY]:").any():
        return {}
    rows = facts.pairs.select("subject_id", "subjects", "objects").iter_rows()
    forms = [
        _form(subject, names[0], gender, language)
        + _form(objects[0]["object_id"], objects[0]["labels"][0], gender, language)
        for subject, names, objects in rows
    ]
    found = facts.pairs.select("pair_id", "relation_id", pl.Series("forms", forms, pl.String))
    return {"forms": found.cast(empty("forms").schema)}


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
