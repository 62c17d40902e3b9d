"""A trie read by an engine that takes texts: each node is a text of its own, of several clozes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from factsweep.operators.engines.preference import Preferred, PreferRequest, Read, log_sum, search

Asked = tuple[Sequence[int], Sequence[int]]
"""A text, and the tokens whose log-probabilities behind it are asked for."""
Said = Callable[[Sequence[Asked]], Sequence[Mapping[int, float]]]
"""Gives log-probabilities of tokens behind texts."""
CLOZES_AT_ONCE = 16  # whose tries are read together: a search asks for few nodes at a time
_MOST = 128  # tokens that vLLM names the log-probabilities of at once


def in_parts(asked: Sequence[Asked]) -> Iterator[tuple[int, Sequence[int], Sequence[int]]]:
    """What is asked, so that each part is answered at once: its number, the text, the tokens."""
    for number, (text, tokens) in enumerate(asked):
        for start in range(0, len(tokens), _MOST):
            yield number, text, tokens[start : start + _MOST]


def preferences(
    requests: Iterable[PreferRequest], said: Said, *, n_at_once: int = CLOZES_AT_ONCE
) -> Iterator[Preferred]:
    """What each request asks for, as soon as it is found; `n_at_once` are searched together."""
    waiting, live = iter(requests), list[_Searched]()
    while live := [*live, *map(_Searched, islice(waiting, n_at_once - len(live)))]:
        answers = iter(said([each for one in live for each in one.asked()]))
        found = [one.told(list(islice(answers, len(one.nodes)))) for one in live]
        live = [one for one, done in zip(live, found, strict=True) if done is None]
        yield from (done for done in found if done is not None)


class _Searched:
    """A request, and the nodes of its trie that are to be read next."""

    def __init__(self, request: PreferRequest) -> None:
        self._request, self._steps = request, search(request)
        self.nodes = next(self._steps)
        self._n_tokens = 0

    def asked(self) -> Iterator[Asked]:
        """What is asked of the engine now."""
        trie = self._request.trie
        for node in self.nodes:
            path = [trie.tokens[each] for each in trie.above(node)[-2::-1]]
            below = [trie.tokens[child] for child in trie.children[node]]
            text = [*self._request.token_ids, *path]
            self._n_tokens += len(text)
            yield text, [*{*below, *self._request.ending}]

    def told(self, said: Sequence[Mapping[int, float]]) -> Preferred | None:
        """Go on with what was said; the answer, if that was all."""
        try:
            self.nodes = self._steps.send(list(map(self._read, self.nodes, said)))
        except StopIteration as ended:
            found: Preferred = ended.value
            return replace(found, n_prompt_tokens=self._n_tokens)
        return None

    def _read(self, node: int, said: Mapping[int, float]) -> Read:
        trie = self._request.trie
        below = [said[trie.tokens[child]] for child in trie.children[node]]
        return Read(below, log_sum(said[token] for token in self._request.ending))
