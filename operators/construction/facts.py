"""A table of facts → what is sound in it, what was found, and rows for the reader of MyriadLAMA.

No paper: the rules are ours. A fact that cannot be asked is left out, with its row and the reason;
one that can be asked and is doubtful is kept, and listed, too.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

import polars as pl

from factsweep.operators.construction.paraphrase import has_slots
from factsweep.operators.errors import InputError

NEEDED = ("relation", "subject", "object")
_CARRIED = ("subject_aliases", "object_aliases", "popularity", "sample")
FINDINGS = pl.Schema({"row": pl.Int64(), "language": pl.String()})
FINDINGS |= dict.fromkeys(("relation", "text", "finding"), pl.String())
FINDINGS |= {"left_out": pl.Boolean()}
# How the letters of a language are named in Unicode; of the others Latin letters are expected.
_SCRIPTS: dict[str, tuple[str, ...]] = {
    "ar": ("ARABIC",),
    "ko": ("HANGUL",),
    "ru": ("CYRILLIC",),
    "zh": ("CJK",),
}
_SCRIPTS |= {"ja": ("HIRAGANA", "KATAKANA", "CJK")}
_WITHOUT_BLANKS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR")
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


def checked(facts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The facts that can be asked, and what was found (FINDINGS), rows counted from 0.

    `facts` has row, language, relation, subject, object, and may have subject_id. Left out are
    empty fields, the second of two equal facts (by Unicode's NFKC and without case), and objects
    that the subject names. Several objects of one subject are kept, and all are right; so is a
    name that belongs to several subject ids.

    >>> facts = pl.DataFrame({"row": [0, 1], "language": "en", "relation": "capital",
    ...                       "subject": ["Peru", "Mexico City"], "object": [None, "Mexico"]})
    >>> checked(facts)[1]["finding"].to_list()
    ['object is empty', 'the subject names the object']
    """
    found: list[tuple[int, str, str, str, str, bool]] = []
    kept: list[int] = []
    seen: set[tuple[str, ...]] = set()
    objects: dict[tuple[str, ...], set[str]] = {}
    ids: dict[tuple[str, ...], set[str]] = {}
    for fact in facts.iter_rows(named=True):
        texts = {name: _plain(fact[name]) for name in NEEDED}
        own_id = str(fact.get("subject_id") or "")
        asked = (fact["language"], texts["relation"], texts["subject"])
        whole = (*asked, own_id, texts["object"])
        reasons = []
        if empty := [name for name in NEEDED if not texts[name]]:
            reasons = [(f"{', '.join(empty)} is empty", True)]
        elif whole in seen:
            reasons = [("a double of an earlier row", True)]
        elif _names(texts["subject"], texts["object"]):
            reasons = [("the subject names the object", True)]
        else:
            others = objects.setdefault((*asked, own_id), set())
            if others:
                reasons.append(("the subject has another object, too; each is right", False))
            others.add(texts["object"])
            known = ids.setdefault(asked, set())
            if known - {own_id}:
                reasons.append(("the subject's name belongs to another id, too", False))
            known.add(own_id)
        seen.add(whole)
        row = int(fact["row"])
        text = f"{fact['subject'] or ''} | {fact['object'] or ''}"
        found += [(row, fact["language"], fact["relation"] or "", text, *each) for each in reasons]
        if not any(left for _, left in reasons):
            kept.append(row)
    return facts.filter(pl.col("row").is_in(kept)), pl.DataFrame(found, FINDINGS, orient="row")


def reviewed(facts: pl.DataFrame, templates: Templates) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The templates (language, relation, template) that can be used, and what was found (FINDINGS).

    Left out are a template without [X] and [Y] once each, one that names an object of its relation,
    and a repetition. One without a letter of its language's script is kept, and listed.
    """
    used: list[tuple[str, str, str]] = []
    found: list[tuple[None, str, str, str, str, bool]] = []
    for (language, relation), mine in facts.group_by("language", "relation", maintain_order=True):
        objects = [_plain(each) for each in mine["object"]]
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
                f"templates: relation {relation!r} of language {language} has none that can be "
                f"used, of {len(texts)}; write one with [X] and [Y] once each, and no object in it."
            )
    columns = dict.fromkeys(("language", "relation", "template"), pl.String())
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
    bare = _plain(text.replace("[X]", " ").replace("[Y]", " "))
    if named := next((each for each in objects if _names(bare, each)), None):
        return f"names the object {named}", True
    scripts = _SCRIPTS.get(language, ("LATIN",))
    letters = [unicodedata.name(each, "") for each in bare if each.isalpha()]
    if letters and not any(name.startswith(scripts) for name in letters):
        return f"no letter of the script of {language}", False
    return "", False


def _names(text: str, label: str) -> bool:
    """Whether a label stands in a text: as whole words, where its script has blanks between them.

    >>> _names("george bush", "us"), _names("tom mexico city", "mexico"), _names("東京都", "東京")
    (False, True, True)
    """
    if any(unicodedata.name(each, "").startswith(_WITHOUT_BLANKS) for each in label):
        return label in text
    return bool(label) and re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text) is not None


def _plain(text: str | None) -> str:
    """A text as it is compared with others."""
    return " ".join(unicodedata.normalize("NFKC", text or "").casefold().split())
