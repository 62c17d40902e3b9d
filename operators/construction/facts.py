"""Facts and their templates → rows for the reader of MyriadLAMA. No paper: the rules are ours."""

from collections.abc import Mapping, Sequence

import polars as pl

from factsweep.operators.construction.fact_flaws import FINDINGS, NEEDED
from factsweep.operators.construction.labels import foreign, names, plain
from factsweep.operators.construction.paraphrase import has_slots
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import schema

_CARRIED = ("subject_aliases", "object_aliases", "popularity", "sample", "type")
_ANY = ("[X] – {}: [Y].", "{} ([X]): [Y].", "[X], {}: [Y].")
_ENGLISH = (
    "The {} of [X] is [Y].",
    "[Y] is the {} of [X].",
    "What is the {} of [X]? [Y].",
    *_ANY[:2],
)

_PROPOSAL = (
    'Write {n} different short sentences in the language "{language}", one per line, each of which '
    'says that [X] and [Y] are in the relation "{relation}". Each has [X] exactly once and [Y] '
    "exactly once, as they stand here, in place of the two names, ends in [Y] where the language "
    "allows it, and names nothing of these examples:"
)
_EXAMPLES = 5
_OF_NONE = "a template of a relation without a fact"

Templates = Mapping[str, Mapping[str, Sequence[str]]]


def generic(facts: pl.DataFrame) -> dict[str, dict[str, list[str]]]:
    """Templates that fit any relation, by language and relation: five in English, else three.

    >>> generic(pl.DataFrame({"language": ["de"], "relation": ["Hauptstadt"]}))["de"]
    {'Hauptstadt': ['[X] – Hauptstadt: [Y].', 'Hauptstadt ([X]): [Y].', '[X], Hauptstadt: [Y].']}
    """
    made: dict[str, dict[str, list[str]]] = {}
    names = facts.select("language", "relation").unique(maintain_order=True)
    for language, relation in names.iter_rows():
        texts = _ENGLISH if language == "en" else _ANY
        made.setdefault(language, {})[relation] = [text.format(relation) for text in texts]
    return made


def proposal(facts: pl.DataFrame, n: int) -> str:
    """The prompt that asks a model for templates of one relation (ours), with its first facts.

    >>> fact = {"language": "en", "relation": "capital", "subject": "Peru", "object": "Lima"}
    >>> proposal(pl.DataFrame([fact]), 5).splitlines()[-1]
    '[X]: Peru; [Y]: Lima'
    """
    language, relation = facts.select("language", "relation").row(0)
    rows = facts.select("subject", "object").head(_EXAMPLES).iter_rows()
    asked = _PROPOSAL.format(n=n, language=language, relation=relation)
    return "\n".join([asked, *(f"[X]: {subject}; [Y]: {object_}" for subject, object_ in rows)])


def reviewed(facts: pl.DataFrame, templates: Templates) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The templates (language, relation, template) that can be used, and what was found (FINDINGS).

    Left out are a template without [X] and [Y] once each, one that names an object of its relation,
    a repetition, and one of a relation without facts. One without a letter of its language's
    script is kept, and listed.

    Raises:
        InputError: a relation has none that can be used.
    """
    used: list[tuple[str, str, str]] = []
    found: list[tuple[None, str, str, str, str, bool]] = []
    for (language, relation), mine in facts.group_by("language", "relation", maintain_order=True):
        objects = [plain(each) for each in mine["object"]]
        texts = templates.get(str(language), {}).get(str(relation), ())
        before = len(used)
        for number, text in enumerate(texts):
            finding, left_out = _finding(text, str(language), objects, texts[:number])
            if finding:
                found.append((None, str(language), str(relation), text, finding, left_out))
            if not left_out:
                used.append((str(language), str(relation), text))
        if len(used) == before:
            raise InputError(
                f"relation {relation!r} of language {language} has no template that can be used, "
                f"of {len(texts)}; write one with [X] and [Y] once each, and no object in it."
            )
    known = set(facts.select("language", "relation").iter_rows())
    for language, held in templates.items():
        for relation, texts in held.items():
            if (language, relation) not in known:
                found += [(None, language, relation, text, _OF_NONE, True) for text in texts]
    columns = schema("language text, relation text, template text")
    return pl.DataFrame(used, columns, orient="row"), pl.DataFrame(found, FINDINGS, orient="row")


def rows(facts: pl.DataFrame, templates: pl.DataFrame) -> pl.DataFrame:
    """Plain rows of one language (operators.datasets.layouts): one per fact and template.

    A fact without an id has its name for one, in a table where others have ids.
    """
    ids = [name for name in ("subject_id", "object_id") if name in facts.columns]
    more = [name for name in _CARRIED if name in facts.columns]
    filled = [pl.col(name).fill_null(pl.col(name.removesuffix("_id"))) for name in ids]
    named = facts.select(*NEEDED, *filled, *more)
    joined = templates.select("relation", "template").join(
        named, on="relation", maintain_order="left_right"
    )
    return joined.with_columns(is_manual=pl.lit(value=True))


def _finding(
    text: str, language: str, objects: Sequence[str], before: Sequence[str]
) -> tuple[str, bool]:
    """What is to be said of a template, and whether it is left out."""
    if not has_slots(text):
        return "not [X] and [Y] once each", True
    if text in before:
        return "a repetition", True
    bare = plain(text.replace("[X]", " ").replace("[Y]", " "))
    if named := next((each for each in objects if names(bare, each)), None):
        return f"names the object {named}", True
    if foreign(bare, language):
        return f"no letter of the script of {language}", False
    return "", False
