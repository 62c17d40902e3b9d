"""Texts to lists of lemmas."""

import hashlib
import importlib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.matching.fold import BLANKLESS, fold
from factsweep.operators.matching.lemmas import SEPARATOR, key

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Token

BLANK = "blank"
# Written without blanks between words: each character stands for itself.
BY_CHARACTER = ("ja", "km", "lo", "my", "th", "zh")
_REMEMBERED = 400_000  # words or texts: some 100 MB
_ONE_THREAD = Lock()  # spaCy takes one at a time, and none forgets what another needs
_BY_RULES = {"nlp": {"tokenizer": {"@tokenizers": "spacy.Tokenizer.v1"}}}
_MARK = "\ue000"  # between words; no folded text has it
_CUT = (r"([\p{L}\p{N}]) ([\p{L}\p{N}])", f"${{1}}{_MARK}${{2}}")
_JOINED = pl.col("lemmas").list.join(SEPARATOR)
# A number, a letter of a script without blanks, or a run of other letters.
_UNIT = (
    rf"\p{{N}}+(?:\.\p{{N}}+|,\p{{N}}{{3}})*|[{BLANKLESS}]|"
    rf"[[\p{{L}}\p{{M}}]--[{BLANKLESS}]]+"
)
# Which particles stand behind a Korean syllable depends on whether it ends in a vowel.
_RIEUL = "".join(map(chr, range(0xAC08, 0xD7A4, 28)))  # ends in ㄹ, and takes 로, too
_VOWEL_SYLLABLES = "".join(map(chr, range(0xAC00, 0xD7A4, 28)))
_PARTICLE = re.compile(
    rf"(.*?[가-힣])(의|에|에서|에게|께|한테|도|만|부터|까지|보다|처럼|"
    r"입니다|입니까|이다|이고|이며|인데)|"
    rf"(.*?[{_VOWEL_SYLLABLES}])(는|가|를|와|로|예요|였다|였습니다|라고|라는)|"
    rf"(.*?[^{_VOWEL_SYLLABLES}\W\d_a-z])"
    rf"(은|이|을|과|으로|이에요|이었다|이었습니다|이라고|이라는|로(?<=[{_RIEUL}]로))"
)
_LETTERS_NOT_VERBS = ("d", "m")  # the table takes them for "had" and "am"
_LISTS = pl.coalesce(pl.col("lemmas").str.split(SEPARATOR), pl.lit([], pl.List(pl.String)))


@dataclass(frozen=True)
class Normaliser:
    """Turns texts into lists of lemmas: lowercase, tokenise, lemmatise, drop punctuation.

    `pipeline` is "blank" (`spacy.blank("en")` with the lookup lemmatizer of spacy-lookups-data),
    the same for another language ("blank-de"), or the name of an installed spaCy pipeline. Where
    there are no lemmas of a language (`has_lemmas`) words are compared as they are; in languages
    that are written without blanks, character by character. Texts are folded first (module
    `fold`).

    Source: BELIEF-ICL, section 3.2, which names neither tokenizer nor lemmatizer. Texts are
    lowercased first, because the lookup table has "countries" and not "Countries".

    >>> texts = pl.Series("text", ["A guitar.", "Guitars", "...", None])
    >>> Normaliser().normalise(texts).to_list()
    [['a', 'guitar'], ['guitar'], [], None]
    """

    pipeline: str = BLANK

    def normalise(self, texts: pl.Series) -> pl.Series:
        """Give the lemmas of each text: String to List(String), null to null; each text once."""
        rows = texts.cast(pl.String).to_frame("given")
        folded = rows.drop_nulls().unique()
        folded = folded.with_columns(text=fold(folded["given"], self._language))
        distinct = folded.select(pl.col("text").unique()).with_row_index("place")
        parts = distinct.select("place", part=self._parts).explode("part")
        of_parts = self._of_parts(parts["part"].unique())
        words = parts.join(of_parts, on="part", maintain_order="left").drop_nulls("lemmas")
        joined = words.group_by("place").agg("lemmas").with_columns(_JOINED)
        lemmas = distinct.join(joined, on="place", how="left").select("text", _LISTS)
        lemmas = folded.join(lemmas, on="text").select("given", "lemmas")
        rows = rows.join(lemmas, on="given", how="left", maintain_order="left")
        return rows["lemmas"].rename(texts.name)

    @property
    def _parts(self) -> pl.Expr:
        """What of a text has the same lemmas by itself: in English, from letter to letter.

        Rules about marks look past a blank ("overlord' 'd-day" has "'d" in it, and "' 'd"), and
        those of some languages are about several words.
        """
        text = pl.col("text")
        if self.pipeline != BLANK:
            return pl.concat_list(text)
        cut = text.str.replace_all(*_CUT).str.replace_all(*_CUT)  # a word may be one letter
        return cut.str.split(_MARK)

    def _of_parts(self, parts: pl.Series) -> pl.DataFrame:
        """The lemmas of each part, joined; null: it has none."""
        texts = parts.to_list()
        with _ONE_THREAD:
            known = _remembered(self.pipeline)
            new = [part for part in texts if part not in known]
            known.update(zip(new, self._joined_lemmas(new), strict=True))
            found = [known[part] for part in texts]
            for part in list(islice(known, max(0, len(known) - _REMEMBERED))):
                del known[part]
        return pl.DataFrame({"part": parts, "lemmas": pl.Series(found, dtype=pl.String)})

    def has_words(self, texts: pl.Series) -> pl.Series:
        """Whether each text has a lemma; no answer can match a label that has none."""
        by_character = language_of(self.pipeline) in BY_CHARACTER
        word = r"[\p{L}\p{M}\p{N}]" if by_character else r"[^\p{P}\s\x1c-\x1f]"
        return fold(texts, self._language).str.contains(word)

    def keyed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with `key` and `n_lemmas` of their column `text`."""
        distinct = rows.select("text").unique()
        lemmas = self.normalise(distinct["text"]).alias("lemmas")
        keys = distinct.with_columns(lemmas).select(
            "text", key=key(pl.col("lemmas")), n_lemmas=pl.col("lemmas").list.len().cast(pl.UInt16)
        )
        return rows.join(keys, on="text", how="left", nulls_equal=True, maintain_order="left")

    @property
    def versions(self) -> dict[str, str]:
        """The versions and the tables (SHA-256) that decide the lemmas, for a fingerprint."""
        if (language := language_of(self.pipeline)) is not None:
            libraries = {name: version(name) for name in ("spacy", "spacy-lookups-data")}
            return {**libraries, "tables": _content(_lookup_tables(language))}
        return {
            "spacy": version("spacy"),
            self.pipeline: str(self._nlp.meta["version"]),
            "tables": _content(p for p in self._nlp.path.rglob("*") if p.is_file()),
        }

    @cached_property
    def _lemma(self) -> "Callable[[Token], str]":
        """What gives a word's lemma; nouns of other languages may stand in tables in capitals."""
        if language_of(self.pipeline) is None:
            return lambda token: _without_stop(token.lemma_)
        nlp = self._nlp
        table: Mapping[str, Any] = {}
        if nlp.has_pipe("lemmatizer"):
            table = nlp.get_pipe("lemmatizer").lookups.get_table("lemma_lookup")
        if self.pipeline == BLANK:

            def english_lemma(token: "Token") -> str:
                word = _without_stop(token.text)
                return word if word in _LETTERS_NOT_VERBS else table.get(word, word)

            return english_lemma

        def lemma(token: "Token") -> str:
            text = token.text  # not every language's rules part the punctuation at its ends from it
            ends = "".join(sign for sign in text if unicodedata.category(sign)[0] == "P")
            word = text.strip(ends) or text
            if text.startswith("-") and word[:1].isdigit():
                word = f"-{word}"
            # Folded texts have "ss" for the "ß" of German tables.
            spellings = [word, word.replace("ss", "ß")] if self._language == "de" else [word]
            entries = (table.get(form, table.get(form.capitalize())) for form in spellings)
            entry = next(filter(None, entries), word)
            return (entry if isinstance(entry, str) else entry[0]).lower().replace("ß", "ss")

        return lemma

    @cached_property
    def _language(self) -> str:
        return language_of(self.pipeline) or str(self._nlp.lang)

    @cached_property
    def _nlp(self) -> "Language":
        language = language_of(self.pipeline)
        return installed(self.pipeline) if language is None else _blank(language)

    def _joined_lemmas(self, texts: Iterable[str]) -> Iterator[str | None]:
        if language_of(self.pipeline) in BY_CHARACTER:
            yield from _units(texts)
            return
        lemma, nlp = self._lemma, self._nlp
        split = nlp.pipe if language_of(self.pipeline) is None else nlp.tokenizer.pipe
        # The zone keeps a long-lived worker from growing: without it spaCy's vocabulary
        # remembers every string that it has ever seen.
        with nlp.memory_zone():
            for doc in split(texts):
                words = [lemma(t) for t in doc if not (t.is_punct or t.is_space)]
                if language_of(self.pipeline) == "ko":
                    words = [part for word in words for part in _without_particles(word)]
                yield SEPARATOR.join(words) if words else None


def language_of(pipeline: str) -> str | None:
    """The language of a blank pipeline; null: it is one that was installed.

    >>> language_of("blank"), language_of("blank-de"), language_of("en_core_web_lg")
    ('en', 'de', None)
    """
    name, _, language = pipeline.partition("-")
    return (language or "en") if name == BLANK else None


def has_lemmas(language: str) -> bool:
    """Whether spacy-lookups-data brings the lemmas of a language."""
    return bool(_lookup_tables(language))


def _lookup_tables(language: str) -> list[Path]:
    """The files of a language's lemmas that spacy-lookups-data brings."""
    spec = find_spec("spacy_lookups_data")
    folders = (spec and spec.submodule_search_locations) or []
    name = f"{language}_lemma_lookup.*"
    return [path for each in folders for path in Path(each, "data").glob(name)]


def _without_stop(word: str) -> str:
    """A word without the full stop of an abbreviation or a sentence: "t." of "Booker T." is "t"."""
    return word.rstrip(".") or word


def _units(texts: Iterable[str]) -> list[str | None]:
    """Split texts without blanks between words into units, joined; null: a text has none.

    A character is a unit. Runs of letters of other scripts are one, and so are numbers.

    >>> _units(["日本の3.5 km。"])[0].split(SEPARATOR)
    ['日', '本', 'の', '3.5', 'km']
    """
    units = pl.Series(list(texts), dtype=pl.String).str.extract_all(_UNIT).list.join(SEPARATOR)
    return units.replace("", None).to_list()


def _without_particles(word: str) -> list[str]:
    """A Korean word and the particles behind it, each for itself.

    Names that end like a particle are parted as well, in labels and answers alike.

    >>> _without_particles("서울에서는"), _without_particles("종로")
    (['서울', '에서', '는'], ['종로'])
    """
    particles: list[str] = []
    while match := _PARTICLE.fullmatch(word):
        word, particle = filter(None, match.groups())
        particles.insert(0, particle)
    return [word, *particles]


def _content(files: Iterable[Path]) -> str:
    """One SHA-256 of the names and bytes of files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _spacy() -> Any:
    """spaCy, without torch where it is not loaded yet, nor its own command line.

    Words are told apart by rules and tables alone, and spaCy would load torch if it is there: two
    seconds and 180 MB for each process that matches answers. Its commands take a fifth of a second.
    """
    nothing = SimpleNamespace(info=None)
    unused: dict[str, Any] = {"torch": None, "spacy.cli": nothing, "spacy.cli.info": nothing}
    if {"torch", "spacy"} & sys.modules.keys():
        unused = {}
    sys.modules.update(unused)  # null: as if it were not installed
    try:
        return importlib.import_module("spacy")
    finally:
        for name in unused:
            del sys.modules[name]


@lru_cache(maxsize=4)
def _remembered(_pipeline: str) -> dict[str, str | None]:
    """The lemmas of the last words or texts, in a string each: Polars is slow to take many lists.

    Those of one relation are often those of the next, whoever matches it.
    """
    return {}


@lru_cache(maxsize=4)
def _blank(language: str) -> "Language":
    """A language's rules and tables, loaded once."""
    spacy = _spacy()
    # By its rules: the segmenters of some languages are programs of their own.
    nlp = spacy.blank("en") if language == "en" else spacy.blank(language, config=_BY_RULES)
    if language != "en" and not has_lemmas(language):
        return nlp
    nlp.add_pipe("lemmatizer", config={"mode": "lookup"})
    try:
        nlp.initialize()
    except ValueError as error:
        raise InputError(
            f"spaCy finds no lookup table of lemmas ({language}); "
            "install it with: pip install spacy-lookups-data"
        ) from error
    return nlp


def installed(pipeline: str) -> "Language":
    """A spaCy pipeline by its name or its folder.

    Raises:
        InputError: it is not installed.
    """
    import spacy  # with torch: a pipeline may be a transformer

    try:
        return spacy.load(pipeline)
    except OSError as error:
        raise InputError(
            f"spaCy pipeline {pipeline!r} is not installed; "
            f"install it with: python -m spacy download {pipeline}"
        ) from error
