"""Texts to lists of lemmas."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.matching.lemmas import SEPARATOR

if TYPE_CHECKING:
    from spacy.language import Language

BLANK = "blank"
_REMEMBERED = 400_000  # texts: some 100 MB
_NONE = pl.lit([], pl.List(pl.String))


@dataclass(frozen=True)
class Normaliser:
    """Turns texts into lists of lemmas: lowercase, tokenise, lemmatise, drop punctuation.

    `pipeline` is "blank" (`spacy.blank("en")` with the lookup lemmatizer of spacy-lookups-data) or
    the name of an installed spaCy pipeline.

    Source: BELIEF-ICL, section 3.2, which names neither tokenizer nor lemmatizer. Texts are
    lowercased first, because the lookup table has "countries" and not "Countries".

    >>> texts = pl.Series("text", ["A guitar.", "Guitars", "...", None])
    >>> Normaliser().normalise(texts).to_list()
    [['a', 'guitar'], ['guitar'], [], None]
    """

    pipeline: str = BLANK

    def normalise(self, texts: pl.Series) -> pl.Series:
        """Give the lemmas of each text: String to List(String), null to null.

        Each distinct lowercased text is tokenised once, also across calls: relations share answers.
        """
        lowered = texts.cast(pl.String).str.to_lowercase().to_frame("text")
        distinct, known = lowered.drop_nulls().unique(), self._memory
        new = [text for text in distinct["text"] if text not in known]
        known.update(zip(new, self._joined_lemmas(new), strict=True))
        joined = pl.Series([known[text] for text in distinct["text"]], dtype=pl.String)
        lists = (
            pl.when(pl.col("lemmas").is_null())
            .then(_NONE)
            .otherwise(pl.col("lemmas").str.split(SEPARATOR))
        )
        lemmas = distinct.with_columns(lemmas=joined).with_columns(lemmas=lists)
        for text in list(islice(known, max(0, len(known) - _REMEMBERED))):
            del known[text]
        rows = lowered.join(lemmas, on="text", how="left", maintain_order="left")
        return rows["lemmas"].rename(texts.name)

    @cached_property
    def _memory(self) -> dict[str, str | None]:
        """The lemmas of the last texts, in a string each: Polars is slow to take many lists."""
        return {}

    @property
    def versions(self) -> dict[str, str]:
        """The versions and the tables (SHA-256) that decide the lemmas, for a fingerprint."""
        if self.pipeline == BLANK:
            libraries = {name: version(name) for name in ("spacy", "spacy-lookups-data")}
            return {**libraries, "tables": _content(_lookup_tables())}
        return {
            "spacy": version("spacy"),
            self.pipeline: str(self._nlp.meta["version"]),
            "tables": _content(p for p in self._nlp.path.rglob("*") if p.is_file()),
        }

    @cached_property
    def _nlp(self) -> "Language":
        return _blank() if self.pipeline == BLANK else _installed(self.pipeline)

    def _joined_lemmas(self, texts: Iterable[str]) -> Iterator[str | None]:
        # The zone keeps a long-lived worker from growing: without it spaCy's vocabulary
        # remembers every string that it has ever seen.
        with self._nlp.memory_zone():
            for doc in self._nlp.pipe(texts):
                words = [t.lemma_ for t in doc if not (t.is_punct or t.is_space)]
                yield SEPARATOR.join(words) if words else None


def _lookup_tables() -> list[Path]:
    """The files of English lemmas that spacy-lookups-data brings."""
    spec = find_spec("spacy_lookups_data")
    folders = (spec and spec.submodule_search_locations) or []
    return [path for each in folders for path in Path(each, "data").glob("en_lemma_lookup.*")]


def _content(files: Iterable[Path]) -> str:
    """One SHA-256 of files: of their names and of every byte."""
    digest = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _blank() -> "Language":
    import spacy

    nlp = spacy.blank("en")
    nlp.add_pipe("lemmatizer", config={"mode": "lookup"})
    try:
        nlp.initialize()
    except ValueError as error:
        raise InputError(
            "spaCy finds no lookup table of English lemmas; "
            "install it with: pip install spacy-lookups-data"
        ) from error
    return nlp


def _installed(pipeline: str) -> "Language":
    import spacy

    try:
        return spacy.load(pipeline)
    except OSError as error:
        raise InputError(
            f"spaCy pipeline {pipeline!r} is not installed; "
            f"install it with: python -m spacy download {pipeline}"
        ) from error
