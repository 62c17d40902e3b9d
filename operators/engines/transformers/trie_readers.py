"""Causal language models of transformers that read a trie of labels behind a cloze.

`TreeReader` reads every node once: the cloze and all nodes lie in one row, and a mask lets a node
see the cloze and the nodes above it. Its position is the one that it has in the label.
`PathReader` runs whole paths behind the cloze's cached tokens, several in a batch: for models that
take no such mask, or whose attention reaches back a few tokens only.

No pass has more than `_TOKENS_PER_PASS` tokens. What a `TreeReader` has read is forgotten where
nothing is left to read below it, so that a large trie does not fill the memory.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from statistics import fmean
from typing import Any

from factsweep.operators.engines.preference import Read
from factsweep.operators.engines.transformers.batches import bounded, padded
from factsweep.operators.prompts.label_trie import Name, Trie

_TOKENS_PER_PASS = 512
_TOKENS_KEPT = 4 * _TOKENS_PER_PASS


class _Behind:
    """Says what a model's logits mean for the nodes of a trie."""

    def __init__(self, model: Any, cloze: Sequence[int], trie: Trie, ending: Sequence[int]) -> None:
        self._model, self._cloze, self._trie, self._ending = model, list(cloze), trie, list(ending)
        self.n_tokens = 0

    def _said(self, nodes: Sequence[int], logits: Any) -> Iterator[Read]:
        """What is said behind each node, from its row of logits."""
        import torch

        below = [[self._trie.tokens[child] for child in self._trie.children[n]] for n in nodes]
        rows = [row for row, tokens in enumerate(below) for _ in tokens]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        whole = logits.logsumexp(-1)
        endings = (logits[:, self._ending].logsumexp(-1) - whole).tolist()
        flat = [token for tokens in below for token in tokens]
        at = torch.tensor(rows, dtype=torch.long), torch.tensor(flat, dtype=torch.long)
        children = iter((logits[at] - whole[at[0]]).tolist())
        for tokens, ending in zip(below, endings, strict=True):
            yield Read([next(children) for _ in tokens], ending)


class TreeReader(_Behind):
    """Reads each node of a trie once, behind a cloze."""

    def __init__(self, model: Any, cloze: Sequence[int], trie: Trie, ending: Sequence[int]) -> None:
        from transformers import DynamicCache

        super().__init__(model, cloze, trie, ending)
        self._cache = DynamicCache()  # of no model: it keeps all that it is given
        self._places: dict[int, int] = {}  # of the nodes that are kept, in the cache
        self._left = [len(below) for below in trie.children]

    def read(self, nodes: Sequence[int]) -> list[Read]:
        """What the model says behind some nodes; those above them are read, or come before them."""
        found: list[Read] = []
        start = 0
        if not self.n_tokens:
            assert nodes[0] == 0, "the root is read first: it is the end of the cloze"
            start = min(len(nodes), 1 + max(0, _TOKENS_PER_PASS - len(self._cloze)))
            found.extend(self._said(nodes[:start], self._begin(nodes[1:start])))
        for at in range(start, len(nodes), _TOKENS_PER_PASS):
            part = nodes[at : at + _TOKENS_PER_PASS]
            self._forget()
            found.extend(self._said(part, self._pass([], part)))
        return found

    def _begin(self, nodes: Sequence[int]) -> Any:
        """Read the cloze, and the first nodes with its end."""
        *pieces, last = _cut(self._cloze)
        for piece in pieces:
            self._pass(piece, [])
        return self._pass(last, nodes)[len(last) - 1 :]

    def _pass(self, cloze: Sequence[int], nodes: Sequence[int]) -> Any:
        """The logits behind the next tokens of the cloze, then behind nodes."""
        import torch

        n_before = self._cache.get_seq_length()
        n_with_cloze = n_before + len(cloze)
        positions = [*range(n_before, n_with_cloze)]
        seen = torch.zeros(len(cloze) + len(nodes), n_with_cloze + len(nodes), dtype=torch.bool)
        seen[: len(cloze)].fill_(1).tril_(n_before)  # up to each token's own place
        for row, node in enumerate(nodes, len(cloze)):
            self._places[node] = n_before + row
            self._left[self._trie.parents[node]] -= 1
            seen[row, : len(self._cloze)] = True
            seen[row, [self._places[above] for above in self._trie.above(node)[:-1]]] = True
        positions += [len(self._cloze) - 1 + self._trie.depth[node] for node in nodes]
        self.n_tokens += len(positions)
        ids = [*cloze, *(self._trie.tokens[node] for node in nodes)]
        return self._logits(ids, positions, seen)

    def _logits(self, ids: Sequence[int], positions: Sequence[int], seen: Any) -> Any:
        import torch

        device, dtype = self._model.device, self._model.dtype
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
        with torch.inference_mode():
            return self._model(
                input_ids=torch.tensor([ids], device=device),
                position_ids=torch.tensor([positions], device=device),
                attention_mask=mask[None, None].to(device),
                past_key_values=self._cache,
                use_cache=True,
            ).logits[0]

    def _forget(self) -> None:
        """Drop the nodes below which nothing is left to read, if many are kept."""
        if len(self._places) <= _TOKENS_KEPT:
            return
        needed = {
            above for node in self._places if self._left[node] for above in self._trie.above(node)
        }
        kept = [node for node in self._places if node in needed]
        keep = [*range(len(self._cloze)), *(self._places[node] for node in kept)]
        for layer in self._cache.layers:
            layer.keys, layer.values = layer.keys[:, :, keep], layer.values[:, :, keep]
        self._places = {node: place for place, node in enumerate(kept, len(self._cloze))}


class PathReader(_Behind):
    """Reads whole paths of a trie behind a cloze, several in a batch."""

    def __init__(self, model: Any, cloze: Sequence[int], trie: Trie, ending: Sequence[int]) -> None:
        from transformers import DynamicCache

        super().__init__(model, cloze, trie, ending)
        self._cache = DynamicCache(config=model.config)

    def read(self, nodes: Sequence[int]) -> list[Read]:
        """What the model says behind some nodes; those above them are read, or come before them."""
        if not self.n_tokens:
            for piece in _cut(self._cloze[:-1]):
                self._logits([piece], self._cache)
            self.n_tokens = len(self._cloze) - 1
        found: dict[int, Read] = {}
        depth = self._trie.depth
        above = {each for node in nodes for each in self._trie.above(node)[1:]}
        longest = sorted(set(nodes) - above, key=lambda node: (depth[node], node))
        for batch in bounded(longest, lambda node: depth[node] + 1, _TOKENS_PER_PASS):
            paths = [self._trie.above(node)[::-1] for node in batch]
            self.n_tokens += sum(map(len, paths))
            found.update(self._along(paths, set(nodes) - found.keys()))
        return [found[node] for node in nodes]

    def _along(self, paths: Sequence[Sequence[int]], asked: set[int]) -> Iterator[tuple[int, Read]]:
        """What is said behind each asked node of some paths."""
        last = self._cloze[-1]
        ids = [[last, *(self._trie.tokens[node] for node in path[1:])] for path in paths]
        cache = deepcopy(self._cache)
        cache.batch_repeat_interleave(len(paths))
        places = {
            node: (row, column)
            for row, path in enumerate(paths)
            for column, node in enumerate(path)
            if node in asked
        }
        rows, columns = zip(*places.values(), strict=True)
        logits = self._logits(ids, cache)[list(rows), list(columns)]
        yield from zip(places, self._said(list(places), logits), strict=True)

    def _logits(self, ids: Sequence[Sequence[int]], cache: Any) -> Any:
        """The logits behind each token; a causal model reads nothing of the padding behind."""
        import torch

        read = padded(ids).to(self._model.device)
        with torch.inference_mode():
            return self._model(input_ids=read, past_key_values=cache, use_cache=True).logits


def _cut(cloze: Sequence[int]) -> list[Sequence[int]]:
    starts = range(0, len(cloze), _TOKENS_PER_PASS)
    return [cloze[start : start + _TOKENS_PER_PASS] for start in starts]


def reads_trees(model: Any) -> bool:
    """Whether a model that reads a small trie in one pass says what it says to each path alone."""
    size = min(model.config.get_text_config().vocab_size, 1000)
    cloze = [(7 * place) % size for place in range(3, 9)]
    paths = [tuple((11 * place * path) % size for place in range(1, 4)) for path in range(1, 5)]
    trie = Trie.of((Name("", str(path)), path) for path in [*paths, paths[0][:1]])
    nodes, ending = range(len(trie.tokens)), [0]
    try:  # some models place tokens by counting, or leave the mask out
        tree = TreeReader(model, cloze, trie, ending).read(nodes)
    except (TypeError, ValueError, RuntimeError):  # it takes no such mask, or no positions
        return False
    alone = PathReader(model, cloze, trie, ending).read(nodes)
    said = ([n for read in each for n in (*read.children, read.ending)] for each in (tree, alone))
    differences = [abs(one - other) for one, other in zip(*said, strict=True)]
    # Types of 16 bits round: a model that reads no trees is off by far more on average.
    tolerance = 1e-4 if model.dtype.itemsize > 2 else 0.1
    return fmean(differences) < tolerance
