"""Which entity a model prefers behind a cloze: plausibilities of entities, by the trie of labels.

The plausibility of an entity is the probability that one of its labels follows the cloze, and then
an ending: a sum over labels, here in nats (log-sum-exp). Three ways to choose the distractors:

    given     those of the trie, in the order in which they are named
    exact     the n most plausible of the trie, whatever it takes: likeliest beginnings first
    optimal   the n most plausible that a beam search of width n finds (ApprOpt)

All then sum up all labels of what they found. The answer is in no search: it takes no beam.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple, Protocol

from factsweep.operators.prompts.label_trie import Trie

Search = Literal["given", "exact", "optimal"]
_NEVER = -math.inf
_AT_ONCE = 64  # nodes that an exact search reads together at least: few take as long as one


@dataclass(frozen=True)
class PreferRequest:
    """A cloze as token ids, the trie of what may follow, and the tokens that begin an ending.

    `distractors` names the entities in their order for `given`; for a search it is empty, and all
    of the trie are meant but the answer and `left_out`. `n` is how many distractors are wanted at
    most.
    """

    request_id: str
    token_ids: Sequence[int]
    trie: Trie
    ending: Sequence[int]
    answer_id: str
    search: Search
    n: int
    distractors: Sequence[str] = ()
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plausible:
    """How plausible an entity is: nats, over all its labels; and the likeliest of them.

    `open_logprob` leaves out the ending. `n_tokens` counts the tokens of the likeliest label.
    """

    entity_id: str
    logprob: float
    open_logprob: float
    label: str
    n_tokens: int


@dataclass(frozen=True)
class Preferred:
    """The right answer and its distractors, in the order in which they count.

    `n_prompt_tokens` counts the tokens that the model read: the cloze's, and those of the trie.
    """

    request_id: str
    answer: Plausible
    distractors: Sequence[Plausible]
    n_prompt_tokens: int
    n_cached_tokens: int = 0


@dataclass(frozen=True)
class BeamsRequest:
    """A cloze as token ids, and how far it is continued: by beams, or one token."""

    request_id: str
    token_ids: Sequence[int]
    width: int
    max_tokens: int
    top_tokens: int


@dataclass(frozen=True)
class Beams:
    """The best continuations of a cloze, best first, and its likeliest next tokens.

    `logprobs` are those of whole continuations (nats), with the token that ends one.
    """

    request_id: str
    texts: Sequence[str]
    logprobs: Sequence[float]
    top_tokens: Sequence[str]
    n_prompt_tokens: int
    n_tokens: int


class Preferrer(Protocol):
    """Compares entities behind clozes, and continues clozes freely."""

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[Preferred]:
        """One answer for each request, in the order in which they are finished."""
        ...

    def beams(self, requests: Iterable[BeamsRequest]) -> Iterator[Beams]:
        """One answer for each request, in the order in which they are finished."""
        ...


class Read(NamedTuple):
    """What a model says behind a node, in nats: of each child's token, and of an ending."""

    children: Sequence[float]
    ending: float


class Reader(Protocol):
    """A model that reads nodes of a trie behind a cloze; it has read `n_tokens` so far."""

    n_tokens: int

    def read(self, nodes: Sequence[int]) -> Sequence[Read]:
        """What the model says behind some nodes; those above them are read, or come before them."""
        ...


Asked = tuple[Sequence[int], Sequence[int]]
"""A text, and the tokens whose log-probabilities behind it are asked for."""
Said = Callable[[Sequence[Asked]], Sequence[Mapping[int, float]]]
"""Gives log-probabilities of tokens behind texts."""
CLOZES_AT_ONCE = 16  # whose tries are read together: a search asks for few nodes at a time
_MOST = 128  # tokens that vLLM names the log-probabilities of at once
Steps = Generator[Sequence[int], Sequence[Read], Preferred]
_TextSteps = Generator[list[Asked], Sequence[Mapping[int, float]], Preferred]


def preferred(request: PreferRequest, reader: Reader) -> Preferred:
    """The plausibilities that a request asks for."""
    steps = search(request)
    nodes = next(steps)
    while True:
        try:
            nodes = steps.send(reader.read(nodes))
        except StopIteration as ended:
            found: Preferred = ended.value
            return replace(found, n_prompt_tokens=reader.n_tokens)


def in_parts(asked: Sequence[Asked]) -> Iterator[tuple[int, Sequence[int], Sequence[int]]]:
    """What is asked, so that each part is answered at once: its number, the text, the tokens."""
    for number, (text, tokens) in enumerate(asked):
        for start in range(0, len(tokens), _MOST):
            yield number, text, tokens[start : start + _MOST]


def preferences(
    requests: Iterable[PreferRequest], said: Said, *, n_at_once: int = CLOZES_AT_ONCE
) -> Iterator[Preferred]:
    """What each request asks for, node by node as texts; `n_at_once` are searched together."""
    waiting, live = iter(requests), list[tuple[_TextSteps, list[Asked]]]()
    while True:
        started = map(_search_by_texts, islice(waiting, n_at_once - len(live)))
        if not (live := [*live, *((steps, next(steps)) for steps in started)]):
            return
        logprobs = iter(said([text for _, asked in live for text in asked]))
        ongoing = []
        for steps, asked in live:
            try:
                ongoing.append((steps, steps.send(list(islice(logprobs, len(asked))))))
            except StopIteration as ended:
                yield ended.value
        live = ongoing


def _search_by_texts(request: PreferRequest) -> _TextSteps:
    """`search` that yields texts, and is sent the log-probabilities of the tokens behind them."""
    steps, trie, n_tokens = search(request), request.trie, 0
    nodes = next(steps)
    while True:
        below = [[trie.tokens[child] for child in trie.children[node]] for node in nodes]
        above = ([trie.tokens[node] for node in trie.above(node)[-2::-1]] for node in nodes)
        texts = [[*request.token_ids, *path] for path in above]
        n_tokens += sum(map(len, texts))
        said = yield [
            (text, [*{*tokens, *request.ending}]) for text, tokens in zip(texts, below, strict=True)
        ]
        reads = [
            Read([logprobs[n] for n in tokens], log_sum(logprobs[n] for n in request.ending))
            for tokens, logprobs in zip(below, said, strict=True)
        ]
        try:
            nodes = steps.send(reads)
        except StopIteration as ended:
            preferred: Preferred = ended.value
            return replace(preferred, n_prompt_tokens=n_tokens)


def search(request: PreferRequest) -> Steps:
    """Find what a request asks for: yields nodes, and is sent what is said behind them."""
    seen = _Seen(request.trie)
    entities = yield from _chosen(request, seen)
    if missing := seen.unread([request.answer_id, *entities]):
        seen.note(missing, (yield missing))
    answer, *found = map(seen.plausible, [request.answer_id, *entities])
    if request.search != "given":
        found.sort(key=lambda each: (-each.logprob, each.entity_id))
    return Preferred(request.request_id, answer, found[: request.n], n_prompt_tokens=0)


def _chosen(
    request: PreferRequest, seen: "_Seen"
) -> Generator[Sequence[int], Sequence[Read], list[str]]:
    """The entities to sum up: for `exact` some more than n, since sums may change their order."""
    if request.search == "given":
        return list(request.distractors[: request.n])
    found, live, waiting = _Found(request), [0], dict[int, float]()
    while live:
        seen.note(live, (yield live))
        for node in live:
            found.add(node, seen.closed(node))
            below = found.open(request.trie.children[node])
            waiting |= {child: seen.logprobs[child] for child in below}
        live, waiting = found.next(waiting)
    return found.best()


class _Seen:
    """What is known of the nodes of a trie behind a cloze."""

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        self.logprobs = {0: 0.0}  # of each path, as far as its node's parent is read
        self._endings: dict[int, float] = {}

    def note(self, nodes: Sequence[int], said: Sequence[Read]) -> None:
        """Keep what is said behind nodes; those above them are read, or among them before them."""
        for node, each in zip(nodes, said, strict=True):
            self._endings[node] = each.ending
            for child, logprob in zip(self._trie.children[node], each.children, strict=True):
                self.logprobs[child] = self.logprobs[node] + logprob

    def unread(self, entities: Iterable[str]) -> list[int]:
        """What is to be read of all labels of some entities, and of the cloze itself."""
        ends = {node for entity_id in entities for node in self._trie.nodes_of[entity_id]}
        needed = {above for node in (*ends, self._trie.start) for above in self._trie.above(node)}
        return sorted(needed - self._endings.keys())

    def closed(self, node: int) -> float:
        """The log-probability of a node's label and an ending, as far as the model has read it."""
        return self.logprobs[node] + self._endings[node]

    def plausible(self, entity_id: str) -> Plausible:
        """The sum over the labels of an entity, all of which are read."""
        nodes = self._trie.nodes_of[entity_id]
        before = self.logprobs[self._trie.start]
        best = max(nodes, key=lambda node: (self.closed(node), -node))
        return Plausible(
            entity_id,
            log_sum(map(self.closed, nodes)) - before,
            log_sum(self.logprobs[node] for node in nodes) - before,
            self._trie.label(best, entity_id),
            self._trie.depth[best] - self._trie.depth[self._trie.start],
        )


class _Found:
    """The entities that a search has come upon, and the nodes that it need not look below."""

    def __init__(self, request: PreferRequest) -> None:
        self._request, self._trie = request, request.trie
        self._barred = {request.answer_id, *request.left_out} & request.trie.nodes_of.keys()
        ends = (node for entity_id in self._barred for node in request.trie.nodes_of[entity_id])
        # How many pairs of a barred entity and a node of its lie at or below each node.
        self._n_barred = Counter(above for node in ends for above in request.trie.above(node))
        self._slack = math.log(max(map(len, request.trie.nodes_of.values()), default=1))
        self._sums: dict[str, float] = {}

    def add(self, node: int, closed: float) -> None:
        """A label of each entity that ends at the node is found."""
        for entity_id in {name.entity_id for name in self._trie.names.get(node, ())}:
            if entity_id not in self._barred:
                self._sums[entity_id] = log_sum([self._sums.get(entity_id, _NEVER), closed])

    def open(self, nodes: Sequence[int]) -> list[int]:
        """Those nodes at or below which a label of some distractor ends."""
        return [node for node in nodes if self._trie.n_names[node] > self._n_barred[node]]

    def next(self, waiting: Mapping[int, float]) -> tuple[list[int], dict[int, float]]:
        """The nodes to look behind now, and those that wait; each has what leads to it, in nats."""
        # What a beginning must reach, so that an entity whose likeliest label it is may count.
        least, exact = _NEVER, self._request.search == "exact"
        if len(self._sums) >= self._request.n:
            nth = heapq.nlargest(self._request.n, self._sums.values())[-1]
            least = nth - self._slack - 1e-6  # rounding must leave nothing out
        likely = {node: logprob for node, logprob in waiting.items() if logprob >= least}
        width = max(self._request.n, _AT_ONCE) if exact else self._request.n
        now = heapq.nsmallest(width, likely, key=lambda node: (-likely[node], node))
        for node in now:
            del likely[node]
        return sorted(now), likely if exact else {}

    def best(self) -> list[str]:
        """The most plausible entities; for `exact` all that may be, once their labels are known."""
        order = heapq.nsmallest(len(self._sums), self._sums, key=lambda e: (-self._sums[e], e))
        if self._request.search == "optimal" or len(order) <= self._request.n:
            return order[: self._request.n]
        nth, labels = self._sums[order[self._request.n - 1]], math.exp(self._slack) - 1
        # The most that the labels which were left out can add to an entity's sum.
        unseen = math.log(labels) + nth - self._slack if labels > 0.5 else _NEVER
        return [e for e in order if log_sum([self._sums[e], unseen]) >= nth - 1e-6]


def log_sum(logprobs: Iterable[float]) -> float:
    """The logarithm of the sum of probabilities, from their logarithms.

    >>> round(log_sum([math.log(0.25), math.log(0.5)]), 6) == round(math.log(0.75), 6)
    True
    """
    values = list(logprobs)
    most = max(values)
    if most == _NEVER:
        return _NEVER
    return most + math.log(math.fsum(math.exp(value - most) for value in values))
