"""Label trie: the labels of entities as a model reads them behind a cloze, shared tokens once.

    The capital of France is| New York City      tokens of the cloze, then a path for each label:
                            | New York
                            | Newark              root ─ New ─ York ─ City
                                                       └ Newark

**Tokens.** What is tokenised is the whole text: the cloze, a blank and the label. The cloze's own
tokens are the prefix, and what follows them is the label's path. Almost every tokenizer cuts a text
in pieces before it looks for tokens, and begins a piece at a blank behind a word: then a label has
the same tokens behind every cloze, and the labels of a set are tokenised once (`Labels`). Each
cloze is checked with some labels of the set all the same. Where a piece may reach over the blank,
each text is tokenised whole, and the prefix is what all of them begin with.

A label's log-probability is that of the whole text less that of the cloze.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from factsweep.operators.prompts.tokens import encode, shared_start

Path = tuple[int, ...]

# Letters, digits, punctuation, quotes, closing marks, other scripts, symbols: what a cloze may end
# and a label begin with, as far as tokenizers tell characters apart.
_ENDS = ("a", "Z", "7", ",", ":", '"', "'", ")", "-", "é", "я", "中", "ש", "€", "½", "😀")
_BEGINS = (*_ENDS, "(", "'s", "'The", "'ll", "3M", ".NET", "¡Ay", "10", "1969", "«", "_", "́")
_CHECKED = 8  # labels of a set that are tried whole behind each cloze


@dataclass(frozen=True, order=True)
class Name:
    """A label of an entity."""

    entity_id: str
    label: str


@dataclass(frozen=True)
class Trie:
    """Paths of tokens from a root, which is node 0; each node comes before those below it.

    `names` has the labels that end at a node. `start` is the node that the cloze itself ends at:
    the root, unless a label's text shares less than the cloze's own tokens with it.
    """

    tokens: Sequence[int]
    parents: Sequence[int]
    children: Sequence[Sequence[int]]
    names: Mapping[int, Sequence[Name]]
    start: int = 0

    @classmethod
    def of(cls, labels: Iterable[tuple[Name, Path]], start: Path = ()) -> "Trie":
        """The trie of some labels, the same in whatever order they come."""
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
        found: dict[str, list[int]] = {}
        for node, names in self.names.items():
            for entity_id in {name.entity_id for name in names}:
                found.setdefault(entity_id, []).append(node)
        return found

    @cached_property
    def depth(self) -> Sequence[int]:
        """How many tokens lie between the root and each node, its own included."""
        found = [0] * len(self.tokens)
        for node, parent in enumerate(self.parents[1:], 1):
            found[node] = found[parent] + 1
        return found

    @cached_property
    def n_names(self) -> Sequence[int]:
        """How many pairs of entity and node lie at or below each node."""
        found = [0] * len(self.tokens)
        for nodes in self.nodes_of.values():
            for node in nodes:
                found[node] += 1
        for node in range(len(found) - 1, 0, -1):
            found[self.parents[node]] += found[node]
        return found

    def above(self, node: int) -> list[int]:
        """The node, and all nodes between it and the root, which comes last."""
        found = [node]
        while found[-1] != 0:
            found.append(self.parents[found[-1]])
        return found

    def label(self, node: int, entity_id: str) -> str:
        """The label of an entity that ends at a node."""
        return next(name.label for name in self.names[node] if name.entity_id == entity_id)


class Behind(NamedTuple):
    """A cloze as a model reads it, and the trie of what may follow: together, the whole texts."""

    token_ids: Sequence[int]
    trie: Trie


@dataclass
class Labels:
    """The labels of a set of entities, by a tokenizer; they are tokenised when first needed."""

    tokenizer: Any
    names: Sequence[Name]
    _at_blank: bool = field(init=False)

    def __post_init__(self) -> None:
        """Leave out blanks around labels, labels of nothing else, and what stands twice."""
        tidy = (Name(name.entity_id, name.label.strip()) for name in self.names)
        self.names = list(dict.fromkeys(name for name in tidy if name.label))
        self._at_blank = cuts_at_blanks(self.tokenizer)

    def behind(self, clozes: Sequence[str]) -> list[Behind]:
        """Each cloze with the labels behind it; a cloze ends in no blank."""
        read = zip(clozes, encode(self.tokenizer, clozes), strict=True)
        return [self._behind(cloze, tuple(token_ids)) for cloze, token_ids in read]

    def _behind(self, cloze: str, own: Path) -> Behind:
        # Some labels are tried whole: they have the tokens that they have by themselves.
        step = max(1, len(self.names) // _CHECKED)
        if self._at_blank and cloze:
            whole = self._texts(cloze, self.names[::step])
            if whole == [own + path for path in self._paths[::step]]:
                return Behind(own, self._trie)
        texts = self._texts(cloze, self.names)
        n_shared = len(shared_start([own, *texts]))
        labels = zip(self.names, (text[n_shared:] for text in texts), strict=True)
        return Behind(own[:n_shared], Trie.of(labels, own[n_shared:]))

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

    Tried on characters of every kind that tokenizers tell apart. A tokenizer that rewrites texts,
    or does not say how it cuts them, is not trusted.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.normalizer is not None or backend.pre_tokenizer is None:
        return False
    cut = backend.pre_tokenizer.pre_tokenize_str
    return all(
        len(end) in {start for _, (start, _) in cut(f"{end} {begin}")}
        and [piece for piece, _ in cut(f"{end} {begin}")][len(cut(end)) :]
        == [piece for piece, _ in cut(f"x {begin}")][1:]
        for end in (f"of{each}" for each in _ENDS)
        for begin in _BEGINS
    )
