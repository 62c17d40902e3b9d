"""Dependency trees from any installed spaCy pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

from factsweep.operators.errors import InputError
from factsweep.operators.matching.normalise import installed

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc


@dataclass(frozen=True)
class DependencyParser:
    """Parses texts with the spaCy pipeline of that name, or that lies in that folder."""

    pipeline: str

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """The place of each word's head, for each text; a root is its own head.

        Words are spaCy's tokens, punctuation too, white space not.

        Raises:
            InputError: the pipeline is not installed, or has no parser.
        """
        return [self._heads(doc) for doc in self._nlp.pipe(texts)]

    @property
    def versions(self) -> dict[str, str]:
        """The versions that decide the trees."""
        return {"spacy": version("spacy"), self.pipeline: str(self._nlp.meta["version"])}

    def _heads(self, doc: "Doc") -> list[int]:
        if not doc.has_annotation("DEP"):
            raise InputError(
                f"spaCy pipeline {self.pipeline!r} has no dependency parser "
                f"(it has {', '.join(self._nlp.pipe_names) or 'no component'}); "
                "name one that has, such as en_core_web_sm."
            )
        return heads(doc)

    @cached_property
    def _nlp(self) -> "Language":
        return installed(self.pipeline)


def heads(doc: "Doc") -> list[int]:
    """The place of each word's head in a parsed spaCy Doc; white space is no word.

    >>> import spacy
    >>> from spacy.tokens import Doc
    >>> words, dependencies = ["X", "died", " ", "there"], ["nsubj", "ROOT", "dep", "advmod"]
    >>> heads(Doc(spacy.blank("en").vocab, words=words, heads=[1, 1, 1, 1], deps=dependencies))
    [1, 1, 1]
    """
    # spaCy hangs white space from the word before it: nothing hangs from white space.
    words = [token for token in doc if not token.is_space]
    places = {token.i: place for place, token in enumerate(words)}
    return [places[token.head.i] for token in words]
