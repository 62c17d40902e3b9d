"""Texts to lists of lemmas."""

import hashlib
import importlib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
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
from factsweep.operators.matching.lemmas import SEPARATOR, key
from factsweep.operators.matching.text_folding import BLANKLESS, fold

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token

BLANK = "blank"
# Written without blanks between words: each character stands for itself.
BY_CHARACTER = ("ja", "km", "lo", "my", "th", "zh")
_REMEMBERED = 400_000  # words: some 100 MB
_ONE_THREAD = Lock()  # spaCy serves one thread at a time
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
    """Turns texts into lists of lemmas: fold, tokenise, lemmatise, drop punctuation.

    `pipeline` is "blank" (`spacy.blank("en")` with the lookup lemmatizer of spacy-lookups-data),
    the same for another language ("blank-de"), or the name of an installed spaCy pipeline. Words of
    a language without lemmas (`has_lemmas`) are compared unchanged; languages that are written
    without blanks, character by character.

    Source: BELIEF-ICL, section 3.2, which names neither tokenizer nor lemmatizer.

    >>> texts = pl.Series("text", ["A guitar.", "Guitars", "...", None])
    >>> Normaliser().normalise(texts).to_list()
    [['a', 'guitar'], ['guitar'], [], None]
    """

    pipeline: str = BLANK

    def normalise(self, texts: pl.Series) -> pl.Series:
        """Give the lemmas of each text: String to List(String), null to null; each text once."""
        rows = texts.cast(pl.String).to_frame("original")
        folded = rows.drop_nulls().unique()
        folded = folded.with_columns(text=fold(folded["original"], self._language))
        distinct = folded.select(pl.col("text").unique()).with_row_index("place")
        parts = distinct.select("place", part=self._parts).explode("part")
        part_lemmas = self._lemmatise(parts["part"].unique())
        words = parts.join(part_lemmas, on="part", maintain_order="left").drop_nulls("lemmas")
        joined = words.group_by("place").agg("lemmas").with_columns(_JOINED)
        lemmas = distinct.join(joined, on="place", how="left").select("text", _LISTS)
        lemmas = folded.join(lemmas, on="text").select("original", "lemmas")
        rows = rows.join(lemmas, on="original", how="left", maintain_order="left")
        return rows["lemmas"].rename(texts.name)

    @property
    def _parts(self) -> pl.Expr:
        """Parts of a text whose lemmas do not depend on the rest: in English, cut between letters.

        Rules about marks look past a blank ("overlord' 'd-day" has "'d" in it, and "' 'd"), and
        rules of some languages concern several words.
        """
        text = pl.col("text")
        if self.pipeline != BLANK:
            return pl.concat_list(text)
        cut = text.str.replace_all(*_CUT).str.replace_all(*_CUT)  # a word may be one letter
        return cut.str.split(_MARK)

    def _lemmatise(self, parts: pl.Series) -> pl.DataFrame:
        """The lemmas of each part, joined; null: it has none."""
        if language_of(self.pipeline) in BY_CHARACTER:
            lemmas = parts.str.extract_all(_UNIT).list.join(SEPARATOR).replace("", None)
            return pl.DataFrame({"part": parts, "lemmas": lemmas})
        nlp = self._nlp
        # The zone keeps a long-lived worker from growing: without it spaCy's vocabulary remembers
        # every string that it has ever seen.
        is_installed = language_of(self.pipeline) is None
        with _ONE_THREAD, nlp.memory_zone():
            cache = _lemma_cache(self.pipeline)
            new_parts = [part for part in parts if part not in cache]
            docs = nlp.pipe(new_parts) if is_installed else map(nlp.tokenizer, new_parts)
            cache.update(zip(new_parts, map(self._joined_lemmas, docs), strict=True))
            joined = [cache[part] for part in parts]
            for part in list(islice(cache, max(0, len(cache) - _REMEMBERED))):
                del cache[part]
        return pl.DataFrame({"part": parts, "lemmas": pl.Series(joined, dtype=pl.String)})

    def _joined_lemmas(self, tokens: "Doc") -> str | None:
        words = [self._lemma(token) for token in tokens if not (token.is_punct or token.is_space)]
        if language_of(self.pipeline) == "ko":
            words = [part for word in words for part in _without_particles(word)]
        return SEPARATOR.join(words) if words else None

    def has_words(self, texts: pl.Series) -> pl.Series:
        """Whether each text has a lemma; no answer can match a label without one."""
        by_character = language_of(self.pipeline) in BY_CHARACTER
        word = r"[\p{L}\p{M}\p{N}]" if by_character else r"[^\p{P}\s\x1c-\x1f]"
        return fold(texts, self._language).str.contains(word)

    def add_keys(self, rows: pl.DataFrame) -> pl.DataFrame:
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
            text = token.text  # some languages' rules leave punctuation at its ends
            punctuation = "".join(sign for sign in text if unicodedata.category(sign)[0] == "P")
            word = text.strip(punctuation) or text
            if text.startswith("-") and word[:1].isdigit():
                word = f"-{word}"
            # Folded texts have "ss" for the "ß" of German tables.
            spellings = [word, word.replace("ss", "ß")] if self._language == "de" else [word]
            # Tables may have nouns in capitals.
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
        return load_pipeline(self.pipeline) if language is None else _load_blank(language)


@lru_cache(maxsize=4)
def _lemma_cache(_pipeline: str) -> dict[str, str | None]:
    """The joined lemmas of the latest parts; those of one relation often recur in the next."""
    return {}


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
    return [path for folder in folders for path in Path(folder, "data").glob(name)]


def _without_stop(word: str) -> str:
    """A word without the full stop of an abbreviation or a sentence: "t." of "Booker T." is "t"."""
    return word.rstrip(".") or word


def _without_particles(word: str) -> list[str]:
    """A Korean word and its particles, separated; also names that end like a particle.

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
    """spaCy, without torch unless it is loaded already, nor its own command line.

    Rules and tables need no torch, which would cost each process that matches answers two seconds
    and 180 MB. spaCy's commands take a fifth of a second.
    """
    nothing = SimpleNamespace(info=None)
    unused: dict[str, Any] = {"torch": None, "spacy.cli": nothing, "spacy.cli.info": nothing}
    if {"torch", "spacy"} & sys.modules.keys():
        unused = {}
    sys.modules.update(unused)  # null: as if not installed
    try:
        return importlib.import_module("spacy")
    finally:
        for name in unused:
            del sys.modules[name]


@lru_cache(maxsize=4)
def _load_blank(language: str) -> "Language":
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


def load_pipeline(pipeline: str) -> "Language":
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
