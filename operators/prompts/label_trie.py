"""Label trie: the labels of entities as a model reads them behind a cloze, shared tokens once.

    The capital of France is| New York City      tokens of the cloze, then a path for each label:
                            | New York
                            | Newark              root ─ New ─ York ─ City
                                                       └ Newark

**Tokens.** The whole text is tokenised: the cloze, a blank and the label; the label's path follows
the cloze's own tokens. Almost every tokenizer splits a text at a blank behind a word: then a label
has the same tokens behind every cloze, and the labels of a set are tokenised once (`Labels`); each
cloze is checked with some of them. With other tokenizers each text is tokenised whole, and the
prefix is the common beginning.

A label's log-probability is that of the whole text less that of the cloze.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, NamedTuple

from factsweep.operators.prompts.tokens import encode, shared_start

Path = tuple[int, ...]

# Ends of clozes and beginnings of labels, one for each kind of character that tokenizers
# distinguish: letters, digits, punctuation, quotes, closing marks, other scripts, symbols.
_ENDS = ("a", "Z", "7", ",", ":", '"', "'", ")", "-", "é", "я", "中", "ש", "€", "½", "😀")
_BEGINS = (*_ENDS, "(", "'s", "'The", "'ll", "3M", ".NET", "¡Ay", "10", "1969", "«", "_", "́")
_CHECKED = 8  # labels of a set that are tokenised whole behind each cloze


@dataclass(frozen=True, order=True)
class Name:
    """A label of an entity."""

    entity_id: str
    label: str


@dataclass(frozen=True)
class Trie:
    """Paths of tokens from a root, which is node 0; each node precedes its descendants.

    `names` has the labels that end at a node. The cloze itself ends at the node `start`: the root,
    unless a label's text shares less than the cloze's own tokens with it.
    """

    tokens: Sequence[int]
    parents: Sequence[int]
    children: Sequence[Sequence[int]]
    names: Mapping[int, Sequence[Name]]
    start: int = 0

    @classmethod
    def of(cls, labels: Iterable[tuple[Name, Path]], start: Path = ()) -> "Trie":
        """The trie of some labels, the same for any order of them."""
        ends: dict[Path, list[Name]] = {}
        for name, path in labels:
            ends.setdefault(path, []).append(name)
        paths = {path[:end] for path in (*ends, start) for end in range(len(path) + 1)} | {()}
        order = sorted(paths)
        places = {path: node for node, path in enumerate(order)}
        parents = [-1, *(places[path[:-1]] for path in order[1:])]
        children: list[list[int]] = [[] for _ in order]
        for node, parent in enumerate(parents[1:], 1):
            children[parent].append(node)
        return cls(
            tokens=[-1, *(path[-1] for path in order[1:])],
            parents=parents,
            children=children,
            names={places[path]: sorted(set(names)) for path, names in ends.items()},
            start=places[start],
        )

    @cached_property
    def nodes_of(self) -> Mapping[str, Sequence[int]]:
        """The nodes that the labels of each entity end at, each once."""
        nodes: dict[str, list[int]] = {}
        for node, names in self.names.items():
            for entity_id in {name.entity_id for name in names}:
                nodes.setdefault(entity_id, []).append(node)
        return nodes

    @cached_property
    def depth(self) -> Sequence[int]:
        """The number of tokens between the root and each node, its own included."""
        depths = [0] * len(self.tokens)
        for node, parent in enumerate(self.parents[1:], 1):
            depths[node] = depths[parent] + 1
        return depths

    @cached_property
    def n_names(self) -> Sequence[int]:
        """The number of pairs of entity and node at or below each node."""
        counts = [0] * len(self.tokens)
        for node in chain.from_iterable(self.nodes_of.values()):
            counts[node] += 1
        for node in range(len(counts) - 1, 0, -1):
            counts[self.parents[node]] += counts[node]
        return counts

    def above(self, node: int) -> list[int]:
        """The node, and all nodes between it and the root, which comes last."""
        path = [node]
        while path[-1] != 0:
            path.append(self.parents[path[-1]])
        return path

    def label(self, node: int, entity_id: str) -> str:
        """The label of an entity that ends at a node."""
        return next(name.label for name in self.names[node] if name.entity_id == entity_id)


class ClozeLabels(NamedTuple):
    """A cloze as token ids, and the trie of the labels behind it: together, the whole texts."""

    token_ids: Sequence[int]
    trie: Trie


@dataclass
class Labels:
    """The labels of a set of entities and a tokenizer; they are tokenised when first needed."""

    tokenizer: Any
    names: Sequence[Name]
    _at_blank: bool = field(init=False)

    def __post_init__(self) -> None:
        """Strip the labels, and drop empty and repeated ones."""
        stripped = (Name(name.entity_id, name.label.strip()) for name in self.names)
        self.names = list(dict.fromkeys(name for name in stripped if name.label))
        self._at_blank = cuts_at_blanks(self.tokenizer)

    def behind(self, clozes: Sequence[str]) -> list[ClozeLabels]:
        """Each cloze with the labels behind it; a cloze ends in no blank."""
        token_ids = map(tuple, encode(self.tokenizer, clozes))
        return list(map(self._labels_behind, clozes, token_ids))

    def _labels_behind(self, cloze: str, prefix: Path) -> ClozeLabels:
        step = max(1, len(self.names) // _CHECKED)
        if self._at_blank and cloze:
            texts = self._texts(cloze, self.names[::step])
            if texts == [prefix + path for path in self._paths[::step]]:
                return ClozeLabels(prefix, self._trie)
        texts = self._texts(cloze, self.names)
        n_shared = len(shared_start([prefix, *texts]))
        labels = zip(self.names, (text[n_shared:] for text in texts), strict=True)
        return ClozeLabels(prefix[:n_shared], Trie.of(labels, prefix[n_shared:]))

    @cached_property
    def _paths(self) -> list[Path]:
        (anchor,) = encode(self.tokenizer, ["a"])
        return [text[len(anchor) :] for text in self._texts("a", self.names)]

    @cached_property
    def _trie(self) -> Trie:
        return Trie.of(zip(self.names, self._paths, strict=True))

    def _texts(self, cloze: str, names: Sequence[Name]) -> list[Path]:
        texts = [f"{cloze} {name.label}" if cloze else name.label for name in names]
        return [tuple(ids) for ids in encode(self.tokenizer, texts)]


@lru_cache(maxsize=4)
def cuts_at_blanks(tokenizer: Any) -> bool:
    """Whether a blank behind a word begins a piece of its own, so that no token reaches over it.

    Tried on characters of every kind. A tokenizer that rewrites texts, or does not show its pieces,
    is not trusted.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.normalizer is not None or backend.pre_tokenizer is None:
        return False
    cut = backend.pre_tokenizer.pre_tokenize_str
    return all(
        len(end) in {start for _, (start, _) in cut(f"{end} {begin}")}
        and [piece for piece, _ in cut(f"{end} {begin}")][len(cut(end)) :]
        == [piece for piece, _ in cut(f"x {begin}")][1:]
        for end in (f"of{letter}" for letter in _ENDS)
        for begin in _BEGINS
    )
