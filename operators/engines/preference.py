"""Which entity a model prefers behind a cloze: plausibilities of entities, by the trie of labels.

The plausibility of an entity is the probability that one of its labels follows the cloze, and then
an ending: a sum over labels, here in nats (log-sum-exp). Three ways to choose the distractors:

    given     those of the trie, in the order in which they are named
    exact     the n most plausible of the trie: likeliest beginnings first, until none can count
    optimal   the n most plausible that a beam search of width n finds (ApprOpt)

Then all labels of these entities are summed up. The answer is in no search: it takes no beam.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, Protocol

from factsweep.operators.prompts.label_trie import Trie

Search = Literal["given", "exact", "optimal"]
_NEVER = -math.inf
_NODES_AT_ONCE = 64  # that an exact search reads together at least: few take as long as one


@dataclass(frozen=True)
class PreferRequest:
    """A cloze as token ids, the trie of labels behind it, and the tokens that begin an ending.

    `distractors` names at most `n` entities in their order for `given`; a search finds the n best
    of the trie without the answer and `left_out`.
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
class EntityScore:
    """The log-probability of an entity in nats, over all its labels, and the likeliest label.

    `open_logprob` leaves out the ending. `n_tokens` counts the tokens of the likeliest label.
    """

    entity_id: str
    logprob: float
    open_logprob: float
    label: str
    n_tokens: int


@dataclass(frozen=True)
class PreferenceResult:
    """The right answer and its distractors, the most plausible first, and the tokens read."""

    request_id: str
    answer: EntityScore
    distractors: Sequence[EntityScore]
    n_prompt_tokens: int


@dataclass(frozen=True)
class BeamsRequest:
    """A cloze as token ids, the number and length of its beams, and of its likeliest tokens."""

    request_id: str
    token_ids: Sequence[int]
    width: int
    max_tokens: int
    top_tokens: int


@dataclass(frozen=True)
class Beams:
    """The best continuations of a cloze, best first, and its likeliest next tokens.

    `logprobs` are sums over whole continuations (nats), with the token that ends one.
    """

    request_id: str
    texts: Sequence[str]
    logprobs: Sequence[float]
    top_tokens: Sequence[str]
    n_prompt_tokens: int
    n_tokens: int


class Preferrer(Protocol):
    """Compares entities behind clozes, and continues clozes freely."""

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[PreferenceResult]:
        """One answer for each request, in the order in which they are finished."""
        ...

    def beams(self, requests: Iterable[BeamsRequest]) -> Iterator[Beams]:
        """One answer for each request, in the order in which they are finished."""
        ...


class Branch(NamedTuple):
    """A text as token ids, the tokens of its next nodes, and the tokens that begin an ending."""

    text: Sequence[int]
    tokens: Sequence[int]
    ending: Sequence[int]


class BranchLogprobs(NamedTuple):
    """Log-probabilities behind a text, in nats: of each token, and of an ending."""

    tokens: Sequence[float]
    ending: float


ReadBranches = Callable[[Sequence[Branch]], Sequence[BranchLogprobs]]
CLOZES_AT_ONCE = 16  # whose tries are read together: a search needs few nodes at a time
_MAX_TOKENS_PER_REQUEST = 128  # whose log-probabilities vLLM returns for one request
_Steps = Generator[list[Branch], Sequence[BranchLogprobs], PreferenceResult]


def split_branches(
    branches: Sequence[Branch],
) -> Iterator[tuple[int, Sequence[int], Sequence[int]]]:
    """Requests that are small enough for vLLM: the branch's index, its text, and some tokens."""
    for index, branch in enumerate(branches):
        tokens = [*{*branch.tokens, *branch.ending}]
        for start in range(0, len(tokens), _MAX_TOKENS_PER_REQUEST):
            yield index, branch.text, tokens[start : start + _MAX_TOKENS_PER_REQUEST]


def join_branches(
    branches: Sequence[Branch], parts: Iterable[tuple[int, Mapping[int, float]]]
) -> list[BranchLogprobs]:
    """The log-probabilities of branches from those of their parts, by the branch's index."""
    logprobs: list[dict[int, float]] = [{} for _ in branches]
    for index, part in parts:
        logprobs[index].update(part)
    return [
        BranchLogprobs(
            [by_token[token] for token in branch.tokens],
            log_sum(by_token[token] for token in branch.ending),
        )
        for branch, by_token in zip(branches, logprobs, strict=True)
    ]


def list_paths(branches: Sequence[Branch]) -> list[list[int]]:
    """The branches by their index, in as few paths as they make, each branch once.

    Within a path each text is the one before it and one more token.
    """
    waiting: dict[tuple[int, ...], list[int]] = {}
    for index, branch in enumerate(branches):
        waiting.setdefault(tuple(branch.text), []).append(index)
    paths = []
    for text in sorted(waiting, key=len, reverse=True):
        while waiting[text]:
            path, n = list[int](), len(text)
            while waiting.get(text[:n]):
                path.append(waiting[text[:n]].pop())
                n -= 1
            paths.append(path[::-1])
    return paths


def preferences(
    requests: Iterable[PreferRequest],
    read: ReadBranches,
    *,
    n_at_once: int = CLOZES_AT_ONCE,
    reuses_cloze: bool = False,
) -> Iterator[PreferenceResult]:
    """The preferences of each request; `n_at_once` clozes are searched together.

    `reuses_cloze`: the engine keeps what it has read, so each node counts as one token.
    """
    waiting, searches = iter(requests), list[tuple[_Steps, list[Branch]]]()
    while True:
        started = (
            _search_entities(request, reuses_cloze=reuses_cloze)
            for request in islice(waiting, n_at_once - len(searches))
        )
        searches += [(steps, next(steps)) for steps in started]
        if not searches:
            return
        logprobs = iter(read([branch for _, branches in searches for branch in branches]))
        ongoing = []
        for steps, branches in searches:
            try:
                ongoing.append((steps, steps.send(list(islice(logprobs, len(branches))))))
            except StopIteration as ended:
                yield ended.value
        searches = ongoing


def _search_entities(request: PreferRequest, *, reuses_cloze: bool) -> _Steps:
    tree = _ReadTrie(request, reuses_cloze=reuses_cloze)
    entity_ids = list(request.distractors[: request.n])
    if request.search != "given":
        entity_ids = yield from _most_plausible(request, tree)
    if missing := tree.unread([request.answer_id, *entity_ids]):
        tree.add(missing, (yield tree.branches(missing)))
    answer, *distractors = map(tree.entity_score, [request.answer_id, *entity_ids])
    if request.search != "given":
        distractors.sort(key=lambda entity: (-entity.logprob, entity.entity_id))
    return PreferenceResult(request.request_id, answer, distractors[: request.n], tree.n_tokens)


def _most_plausible(
    request: PreferRequest, tree: "_ReadTrie"
) -> Generator[list[Branch], Sequence[BranchLogprobs], list[str]]:
    """The entities to sum up: for `exact` some more than n, since sums may change their order."""
    candidates, nodes, waiting = _Candidates(request), [0], dict[int, float]()
    while nodes:
        tree.add(nodes, (yield tree.branches(nodes)))
        for node in nodes:
            candidates.add(node, tree.closed_logprob(node))
            below = candidates.with_distractors(request.trie.children[node])
            waiting |= {child: tree.logprobs[child] for child in below}
        nodes, waiting = candidates.next_nodes(waiting)
    return candidates.best()


class _ReadTrie:
    """A trie behind a cloze, with the log-probabilities of the nodes that were read."""

    def __init__(self, request: PreferRequest, *, reuses_cloze: bool) -> None:
        self._request, self._trie, self._reuses_cloze = request, request.trie, reuses_cloze
        self.n_tokens = 0
        self.logprobs = {0: 0.0}  # of the path to each node whose parent was read
        self._endings: dict[int, float] = {}

    def branches(self, nodes: Sequence[int]) -> list[Branch]:
        """The texts that end at nodes, with the tokens of their children."""
        branches = []
        for node in nodes:
            path = [self._trie.tokens[above] for above in self._trie.above(node)[-2::-1]]
            text = [*self._request.token_ids, *path]
            tokens = [self._trie.tokens[child] for child in self._trie.children[node]]
            branches.append(Branch(text, tokens, self._request.ending))
            self.n_tokens += 1 if path and self._reuses_cloze else len(text)
        return branches

    def add(self, nodes: Sequence[int], branches: Sequence[BranchLogprobs]) -> None:
        """Keep the log-probabilities behind nodes, parents before their children."""
        for node, branch in zip(nodes, branches, strict=True):
            self._endings[node] = branch.ending
            for child, logprob in zip(self._trie.children[node], branch.tokens, strict=True):
                self.logprobs[child] = self.logprobs[node] + logprob

    def unread(self, entity_ids: Iterable[str]) -> list[int]:
        """The unread nodes of all labels of some entities, and of the cloze itself."""
        ends = {node for entity_id in entity_ids for node in self._trie.nodes_of[entity_id]}
        needed = {above for node in (*ends, self._trie.start) for above in self._trie.above(node)}
        return sorted(needed - self._endings.keys())

    def closed_logprob(self, node: int) -> float:
        """The log-probability of a node's label and an ending behind it."""
        return self.logprobs[node] + self._endings[node]

    def entity_score(self, entity_id: str) -> EntityScore:
        """The sum over the labels of an entity, all of which are read."""
        nodes = self._trie.nodes_of[entity_id]
        of_cloze = self.logprobs[self._trie.start]
        best = max(nodes, key=lambda node: (self.closed_logprob(node), -node))
        return EntityScore(
            entity_id,
            log_sum(map(self.closed_logprob, nodes)) - of_cloze,
            log_sum(self.logprobs[node] for node in nodes) - of_cloze,
            self._trie.label(best, entity_id),
            self._trie.depth[best] - self._trie.depth[self._trie.start],
        )


class _Candidates:
    """The entities that a search has reached, and the nodes without a distractor below them."""

    def __init__(self, request: PreferRequest) -> None:
        self._request, self._trie = request, request.trie
        self._barred = {request.answer_id, *request.left_out} & request.trie.nodes_of.keys()
        ends = (node for entity_id in self._barred for node in request.trie.nodes_of[entity_id])
        # How many pairs of a barred entity and a node of its lie at or below each node.
        self._n_barred = Counter(above for node in ends for above in request.trie.above(node))
        self._slack = math.log(max(map(len, request.trie.nodes_of.values()), default=1))
        self._sums: dict[str, float] = {}

    def add(self, node: int, closed: float) -> None:
        """Add a label's log-probability to each entity whose label ends at the node."""
        for entity_id in {name.entity_id for name in self._trie.names.get(node, ())}:
            if entity_id not in self._barred:
                self._sums[entity_id] = log_sum([self._sums.get(entity_id, _NEVER), closed])

    def with_distractors(self, nodes: Sequence[int]) -> list[int]:
        """Those nodes at or below which a label of some distractor ends."""
        return [node for node in nodes if self._trie.n_names[node] > self._n_barred[node]]

    def next_nodes(self, waiting: Mapping[int, float]) -> tuple[list[int], dict[int, float]]:
        """The nodes to read next, and the waiting ones, with the log-probability of their paths."""
        # The least of a path that may be the likeliest label of one of the n best entities.
        least, is_exact = _NEVER, self._request.search == "exact"
        if len(self._sums) >= self._request.n:
            nth = heapq.nlargest(self._request.n, self._sums.values())[-1]
            least = nth - self._slack - 1e-6  # rounding must leave nothing out
        likely = {node: logprob for node, logprob in waiting.items() if logprob >= least}
        width = max(self._request.n, _NODES_AT_ONCE) if is_exact else self._request.n
        nodes = heapq.nsmallest(width, likely, key=lambda node: (-likely[node], node))
        for node in nodes:
            del likely[node]
        return sorted(nodes), likely if is_exact else {}

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
