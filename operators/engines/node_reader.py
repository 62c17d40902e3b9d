"""A trie read by an engine that takes texts: each node is a text of its own."""

from collections.abc import Callable, Mapping, Sequence

from operators.engines.preference import PreferRequest, Read, log_sum

Asked = tuple[Sequence[int], Sequence[int]]
"""A text, and the tokens whose log-probabilities behind it are asked for."""


class NodeReader:
    """Reads nodes of a request's trie; `said` gives log-probabilities of tokens behind texts."""

    def __init__(
        self,
        request: PreferRequest,
        said: Callable[[Sequence[Asked]], Sequence[Mapping[int, float]]],
    ) -> None:
        self._request, self._said = request, said
        self.n_tokens = 0

    def read(self, nodes: Sequence[int]) -> list[Read]:
        """What is said behind some nodes."""
        asked = list(map(self._asked, nodes))
        self.n_tokens += sum(len(text) for text, _ in asked)
        answers = zip(nodes, self._said(asked), strict=True)
        return [self._read(node, said) for node, said in answers]

    def _asked(self, node: int) -> Asked:
        trie = self._request.trie
        path = [trie.tokens[each] for each in trie.above(node)[-2::-1]]
        below = [trie.tokens[child] for child in trie.children[node]]
        return [*self._request.token_ids, *path], [*{*below, *self._request.ending}]

    def _read(self, node: int, said: Mapping[int, float]) -> Read:
        trie = self._request.trie
        below = [said[trie.tokens[child]] for child in trie.children[node]]
        return Read(below, log_sum(said[token] for token in self._request.ending))
