"""A table of facts: findings about its rows, and templates for them. No paper: the rules are ours.

A fact that cannot be asked is left out, with its row and the reason; a doubtful one is kept, and
listed, too.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from factsweep.operators.construction.paraphrase import has_slots
from factsweep.operators.datasets.facts import strip_invisible
from factsweep.operators.datasets.layouts import parse_list
from factsweep.operators.errors import InputError
from factsweep.operators.matching.normalise import Normaliser
from factsweep.operators.schemas import schema

# How the letters of a language are named in Unicode; of a language without an entry any will do.
_SCRIPTS: dict[str, tuple[str, ...]] = {
    "ar": ("ARABIC",),
    "ja": ("HIRAGANA", "KATAKANA", "CJK", "HALFWIDTH KATAKANA"),
    "ko": ("HANGUL",),
    "zh": ("CJK",),
    **dict.fromkeys(("bg", "ru", "uk"), ("CYRILLIC",)),
    **dict.fromkeys(("de", "en", "es", "fr", "it", "nl", "pl", "pt", "tr"), ("LATIN",)),
}
_WITHOUT_BLANKS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR")


def normalise_text(text: str | None) -> str:
    """A text in the form for comparisons."""
    return " ".join(unicodedata.normalize("NFKC", text or "").casefold().split())


def contains_label(text: str, label: str) -> bool:
    """Whether a label stands in a text: as whole words, where its script has blanks between them.

    >>> texts = {"us": "george bush", "mexico": "tom mexico city", "東京": "東京都"}
    >>> [contains_label(text, label) for label, text in texts.items()]
    [False, True, True]
    """
    if any(unicodedata.name(letter, "").startswith(_WITHOUT_BLANKS) for letter in label):
        return label in text
    return bool(label) and re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text) is not None


def is_foreign(text: str, language: str) -> bool:
    """Whether a text has letters, and none of the script of its language.

    >>> is_foreign("Paris", "ja"), is_foreign("DNA鑑定", "ja"), is_foreign("1984", "ja")
    (True, False, False)
    """
    scripts = _SCRIPTS.get(language)
    letters = [unicodedata.name(letter, "") for letter in text if letter.isalpha()]
    return scripts is not None and bool(letters) and not any(n.startswith(scripts) for n in letters)


NEEDED = ("relation", "subject", "object")
ALIASES = ("subject_aliases", "object_aliases")
FINDINGS = schema("row int, language text, relation text, text text, finding text, left_out bool")
_CLEANED = "a line break, or an invisible character, was removed"
_UNDATED = "its date is not written as 2024-12-31, and so counts as none"


def check_rows(facts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The facts that can be asked, and findings (FINDINGS); rows are counted from 0.

    `facts` has row, language, relation, subject, object, and may have subject_id and other names.
    Left out are empty fields, the second of two equal facts (by Unicode's NFKC and without case),
    objects that the subject names, and objects that no answer can match. Kept are several objects
    of one subject, which are all right, names that several ids have, ids that have several names,
    other names that reveal the object, and names in another script.
    """
    rows: list[tuple[int, str, bool]] = []
    earlier, facts = _EarlierRows(), facts.with_row_index("place")  # a row may be of several facts
    for fact in facts.iter_rows(named=True):
        if flaw := earlier.flaw(fact):
            rows.append((fact["place"], flaw, True))
        else:
            rows += [(fact["place"], doubt, False) for doubt in earlier.find_doubts(fact)]
    findings = pl.DataFrame(rows, schema("place int, finding text, left_out bool"), orient="row")
    findings = findings.cast({"place": pl.UInt32})
    omitted = findings.filter("left_out")["place"].implode()
    texts = _format_rows(facts).with_columns(facts["place"])
    findings = texts.join(findings, "place", maintain_order="right").drop("place")
    return facts.filter(~pl.col("place").is_in(omitted)).drop("place"), findings


class _EarlierRows:
    """The names and ids of earlier rows, in the form for comparisons."""

    def __init__(self) -> None:
        self._whole: set[tuple[str, ...]] = set()
        self._objects: dict[tuple[str, ...], set[str]] = {}
        self._ids: dict[tuple[str, ...], set[str]] = {}
        self._subject_names: dict[tuple[str, ...], str] = {}

    def flaw(self, fact: Mapping[str, Any]) -> str | None:
        """Why a fact cannot be asked."""
        key = language, relation, subject, object_, _ = _normalise_fact(fact)
        texts = (relation, subject, object_)
        if empty := [name for name, text in zip(NEEDED, texts, strict=True) if not text]:
            return f"{', '.join(empty)} is empty"
        if key in self._whole:
            return "a double of an earlier row"
        self._whole.add(key)
        if contains_label(subject, object_):
            return "the subject names the object"
        if object_[0].isalnum():  # as most: only others are looked at more closely
            return None
        normaliser = Normaliser("blank" if language == "en" else f"blank-{language}")
        labels = pl.Series([object_, *_aliases(fact, "object_aliases")], dtype=pl.String)
        if normaliser.has_words(labels).any():
            return None
        return "no answer can match its object, which has no word"

    def find_doubts(self, fact: Mapping[str, Any]) -> Iterator[str]:
        """The doubts about a fact that can be asked."""
        language, relation, subject, object_, subject_id = _normalise_fact(fact)
        question = (language, relation, subject)
        objects = self._objects.setdefault((*question, subject_id), set())
        if objects:
            yield "the subject has another object, too; each is right"
        objects.add(object_)
        ids = self._ids.setdefault(question, set())
        if ids - {subject_id}:
            yield "the subject's name belongs to another id, too"
        ids.add(subject_id)
        of_id = (language, relation, subject_id)
        if subject_id and self._subject_names.setdefault(of_id, subject) != subject:
            yield "its subject id has another name in an earlier row, and is asked by that one"
        aliases, labels = (_aliases(fact, name) for name in ("subject_aliases", "object_aliases"))
        if any(contains_label(s, o) for s in (subject, *aliases) for o in (object_, *labels)):
            yield "a name of the subject names the object"
        if any(is_foreign(fact[name], language) for name in ("subject", "object")):
            yield f"a name without a letter of the script of {language}"


def _normalise_fact(fact: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    subject_id = str(fact.get("subject_id") or "")
    return (fact["language"], *(normalise_text(fact[name]) for name in NEEDED), subject_id)


def _aliases(fact: Mapping[str, Any], name: str) -> list[str]:
    cell = fact.get(name)
    texts = parse_list(cell, name, fact["row"]) if isinstance(cell, str) else cell
    return [*map(normalise_text, texts or ())]


def clean_rows(facts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The facts without line breaks and invisible characters, and findings where there were any."""

    def clean(text: pl.Expr) -> pl.Expr:
        return strip_invisible(text.str.replace_all(r"[\s--\ ]+", " "))

    texts = [n for n in (*NEEDED, *ALIASES) if facts.schema.get(n) == pl.String]
    lists = [n for n in ALIASES if facts.schema.get(n) == pl.List(pl.String)]
    clean_facts = facts.with_columns(
        *(clean(pl.col(name)) for name in texts),
        *(pl.col(name).list.eval(clean(pl.element())) for name in lists),
    )
    other = [clean_facts[name].ne_missing(facts[name]) for name in (*texts, *lists)]
    changed = pl.select(pl.any_horizontal(other)).to_series()
    return clean_facts, _findings(clean_facts.filter(changed), _CLEANED)


def find_undated(facts: pl.DataFrame) -> pl.DataFrame:
    """The facts (FINDINGS) whose date cannot be read."""
    if "date" not in facts.columns:
        return FINDINGS.to_frame()
    has_date = pl.col("date").replace("", None).is_not_null()
    return _findings(facts.filter(has_date & parse_day(pl.col("date")).is_null()), _UNDATED)


def _findings(facts: pl.DataFrame, finding: str) -> pl.DataFrame:
    return _format_rows(facts).with_columns(finding=pl.lit(finding), left_out=False).cast(FINDINGS)


def _format_rows(facts: pl.DataFrame) -> pl.DataFrame:
    """Rows for messages: row, language, relation, and their subject and object as `text`."""
    text = pl.concat_str(pl.col("subject", "object").fill_null(""), separator=" | ")
    relation = pl.col("relation").fill_null("")
    return facts.select(pl.col("row").cast(pl.Int64), "language", relation, text=text)


def parse_day(date: pl.Expr) -> pl.Expr:
    """Texts as dates; null where one is none."""
    return date.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False)


_CARRIED = ("subject_aliases", "object_aliases", "popularity", "sample", "type")
_ANY = ("[X] – {}: [Y].", "{} ([X]): [Y].", "[X], {}: [Y].")
# English templates by the form of the relation's name.
_NOUN = ("The {} of [X] is [Y].", "[Y] is the {} of [X].", "What is the {} of [X]? [Y].", *_ANY[:2])
_AFTER_IS = ("[X] is {} [Y].", "[X], {} [Y].", "What is [X] {}? [Y].", _ANY[0], _ANY[2])
_VERB = ("[X] {} [Y].", "[X] {}: [Y].", *_ANY)
# What does not belong to the noun in a name: the capital, has capital, what is the capital of, …
_BEFORE_NOUN = re.compile(
    r"(?P<question>(?:what|which|who|where) (?:is|are|was|were) )?"
    r"(?:(?:has|have|had) (?!been\b))?(?:(?:the|an?|its) )?(?=\S)",
    re.IGNORECASE,
)
_BE = re.compile(r"(?:is|are|was|were|has been|have been)\b", re.IGNORECASE)
_THIRD_PERSON = re.compile(r"\w*[^\Wsui]s ", re.IGNORECASE)
_OF = re.compile(r"(?:^| )of$", re.IGNORECASE)
_PREPOSITION = re.compile(
    r"(?:^| )(?:in|at|on|by|for|from|to|with|as|into|under|after|before|near|than|the|an?)$",
    re.IGNORECASE,
)


def _english_templates(relation: str) -> list[str]:
    """Templates that read like English after the form of a relation's name.

    >>> for relation in ("the capital", "founded by", "plays for", "capital_of"):
    ...     print(_english_templates(relation)[0])
    The capital of [X] is [Y].
    [X] is founded by [Y].
    [X] plays for [Y].
    [X] – capital of: [Y].
    """
    name = " ".join(relation.replace("_", " ").split()).rstrip(" :?.") or relation
    opening = _BEFORE_NOUN.match(name)
    texts: Sequence[str]
    is_linked = _OF.search(name) or _PREPOSITION.search(name)
    if opening and opening["question"]:  # what is the capital of
        texts, name = _NOUN, _OF.sub("", name[opening.end() :])
    elif _BE.match(name) or (is_linked and _THIRD_PERSON.match(name)):
        texts = _VERB
    elif _OF.search(name):  # either may be the capital, so nothing is said
        texts = _ANY
    elif is_linked:
        texts = _AFTER_IS
    else:
        texts = _NOUN
        name = re.sub(" (?:is|are|was|were)$", "", name[opening.end() if opening else 0 :])
    return [text.format(name) for text in texts]


_PROPOSAL = (
    'Write {n} different short sentences in the language "{language}", one per line, each of which '
    'says that [X] and [Y] are in the relation "{relation}". Each has [X] exactly once and [Y] '
    "exactly once, as they stand here, in place of the two names, ends in [Y] where the language "
    "allows it, and names nothing of these examples:"
)
_EXAMPLES = 5
_OF_NONE = "a template of a relation without a fact"

Templates = Mapping[str, Mapping[str, Sequence[str]]]


def generic_templates(facts: pl.DataFrame) -> dict[str, dict[str, list[str]]]:
    """Templates that fit any relation, by language and relation.

    >>> generic_templates(pl.DataFrame({"language": ["de"], "relation": ["Hauptstadt"]}))["de"]
    {'Hauptstadt': ['[X] – Hauptstadt: [Y].', 'Hauptstadt ([X]): [Y].', '[X], Hauptstadt: [Y].']}
    """
    templates: dict[str, dict[str, list[str]]] = {}
    names = facts.select("language", "relation").unique(maintain_order=True)
    for language, relation in names.iter_rows():
        texts = [text.format(relation) for text in _ANY]
        templates.setdefault(language, {})[relation] = (
            _english_templates(relation) if language == "en" else texts
        )
    return templates


def proposal_prompt(facts: pl.DataFrame, n: int) -> str:
    """The prompt that asks a model for templates of one relation (ours), with its first facts.

    >>> fact = {"language": "en", "relation": "capital", "subject": "Peru", "object": "Lima"}
    >>> proposal_prompt(pl.DataFrame([fact]), 5).splitlines()[-1]
    '[X]: Peru; [Y]: Lima'
    """
    language, relation = facts.select("language", "relation").row(0)
    rows = facts.select("subject", "object").head(_EXAMPLES).iter_rows()
    instruction = _PROPOSAL.format(n=n, language=language, relation=relation)
    examples = (f"[X]: {subject}; [Y]: {object_}" for subject, object_ in rows)
    return "\n".join([instruction, *examples])


def review_templates(
    facts: pl.DataFrame, templates: Templates
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The usable templates (language, relation, template), and findings (FINDINGS).

    Left out are a template without [X] and [Y] once each, one that names an object of its relation,
    a repetition, and one of a relation without facts. One without a letter of its language's
    script is kept, and listed.

    Raises:
        InputError: a relation has none that can be used.
    """
    usable: list[tuple[str, str, str]] = []
    findings: list[tuple[None, str, str, str, str, bool]] = []
    objects_by_relation = facts.group_by("language", "relation", maintain_order=True).agg("object")
    for language, relation, labels in objects_by_relation.iter_rows():
        texts = templates.get(language, {}).get(relation, ())
        n_before, objects = len(usable), [normalise_text(label) for label in labels]
        for number, text in enumerate(texts):
            finding, is_left_out = _finding(text, language, objects, texts[:number])
            if finding:
                findings.append((None, language, relation, text, finding, is_left_out))
            if not is_left_out:
                usable.append((language, relation, text))
        if len(usable) == n_before:
            raise InputError(
                f"relation {relation!r} of language {language} has no template that can be used, "
                f"of {len(texts)}; write one with [X] and [Y] once each, and no object in it."
            )
    relations = set(facts.select("language", "relation").iter_rows())
    findings += [
        (None, language, relation, text, _OF_NONE, True)
        for language, of_language in templates.items()
        for relation, texts in of_language.items()
        for text in texts
        if (language, relation) not in relations
    ]
    columns = schema("language text, relation text, template text")
    table = pl.DataFrame(findings, FINDINGS, orient="row")
    return pl.DataFrame(usable, columns, orient="row"), table


def plain_rows(facts: pl.DataFrame, templates: pl.DataFrame) -> pl.DataFrame:
    """Plain rows of one language (operators.datasets.layouts): one per fact and template.

    A fact without an id has its name for one, in a table where others have ids.
    """
    ids = [name for name in ("subject_id", "object_id") if name in facts.columns]
    filled = [pl.col(name).fill_null(pl.col(name.removesuffix("_id"))) for name in ids]
    carried = [name for name in _CARRIED if name in facts.columns]
    facts = facts.select(*NEEDED, *filled, *carried)
    rows = templates.select("relation", "template")
    rows = rows.join(facts, on="relation", maintain_order="left_right")
    return rows.with_columns(is_manual=pl.lit(value=True))


def _finding(
    text: str, language: str, objects: Sequence[str], earlier: Sequence[str]
) -> tuple[str, bool]:
    """A finding about a template (empty: none), and whether it is left out."""
    if not has_slots(text):
        return "not [X] and [Y] once each", True
    if text in earlier:
        return "a repetition", True
    bare = normalise_text(text.replace("[X]", " ").replace("[Y]", " "))
    if label := next((label for label in objects if contains_label(bare, label)), None):
        return f"names the object {label}", True
    if is_foreign(bare, language):
        return f"no letter of the script of {language}", False
    return "", False
