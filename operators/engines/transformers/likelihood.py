"""Log-likelihoods of texts, by causal and by masked models of transformers.

Causal models read what texts begin with once, and keep its keys and values; the rest of the texts
follows in batches. Texts are padded on the right, and a causal model never looks ahead: no
attention mask is needed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import groupby, islice
from typing import Any

from factsweep.operators.engines.protocol import Scored, ScoreRequest
from factsweep.operators.engines.transformers import batches
from factsweep.operators.prompts.tokens import shared_start

_TEXTS_PER_WINDOW = 512  # that are scored by a masked model, each once per token
_SCORED_TEXTS = 4096  # whose shared beginnings are found
_PASS_TOKENS = 32  # that a pass more costs: it reads all weights


class Likelihood:
    """A transformers model for causal language modelling, which reads shared beginnings once.

    In float32 these are found in windows of requests, across groups; with less precision, batches
    depend on a group alone, since the sums depend on the batch.
    """

    def __init__(self, model: Any, *, device: str | None = "cpu") -> None:
        """Take a model and move it, or leave it where it is (null): one that is in training."""
        self._model = (model if device is None else model.to(device)).eval()
        self._device = device or model.device

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, by the beginnings of texts; of one, short texts first."""
        import torch

        if getattr(self._model, "dtype", None) != torch.float32:
            for _, group in groupby(requests, key=lambda request: request.group):
                yield from self._group(sorted(group, key=_by_length))
            return
        waiting = iter(requests)
        while window := list(islice(waiting, _SCORED_TEXTS)):
            for run in split_by_start(sorted(window, key=lambda r: tuple(r.token_ids)))[1]:
                yield from self._group(sorted(run, key=_by_length))

    def _group(self, requests: Sequence[ScoreRequest]) -> Iterator[Scored]:
        from transformers import DynamicCache

        n_read = len(shared_start([request.token_ids for request in requests]))
        n_read = min(n_read, max(len(requests[-1].token_ids) - 1, 0))
        cache = DynamicCache(config=self._model.config)
        following = [[*r.token_ids[n_read : n_read + 1]] for r in requests]
        shared = requests[0].token_ids[:n_read]
        prefix_logprobs, first_logprobs = self._prefix(shared, following, cache)
        n_cached_tokens = 0  # the prefix was read for the first text
        start = 0
        limits = batches.MOST_TOKENS, _PASS_TOKENS
        for batch in batches.cut_batches(requests, lambda r: len(r.token_ids), *limits):
            texts = [request.token_ids[n_read:] for request in batch]
            behind = self._logprobs(texts, cache)
            for n, request in enumerate(batch):
                logprobs = [*prefix_logprobs, *first_logprobs[start + n], *behind[n]]
                yield Scored.of(request, logprobs, n_cached_tokens=n_cached_tokens)
                n_cached_tokens = n_read
            start += len(batch)

    def _prefix(
        self, shared: Sequence[int], following: Sequence[Sequence[int]], cache: Any
    ) -> tuple[list[float], list[list[float]]]:
        """Of the shared tokens from the second on, and of the one that follows in each text.

        The cache takes in all of them.
        """
        of_shared: list[float] = []
        logprobs = None
        for start, logits in self._passes(batches.pad_rows([shared]), cache) if shared else ():
            logprobs = logits[0].log_softmax(-1)
            targets = shared[start + 1 : start + 1 + len(logprobs)]
            of_shared += logprobs[range(len(targets)), targets].tolist()
        if logprobs is None:
            return of_shared, [[] for _ in following]
        tokens = [token for follow in following for token in follow]
        values = iter(logprobs[-1, tokens].tolist())
        return of_shared, [[next(values) for _ in follow] for follow in following]

    def _logprobs(self, texts: Sequence[Sequence[int]], cache: Any) -> list[list[float]]:
        """Of each text's tokens from the second on, behind the tokens in the cache."""
        lengths = [max(len(text) - 1, 0) for text in texts]
        logprobs: list[list[float]] = [[] for _ in texts]
        if not max(lengths):
            return logprobs
        copies = deepcopy(cache)
        copies.batch_repeat_interleave(len(texts))
        ids = batches.pad_rows(texts).to(self._device)
        for start, logits in self._passes(ids[:, :-1], copies):
            targets = ids[:, start + 1 : start + 1 + logits.shape[1], None]
            # Not log_softmax, which would write a table of tokens × vocabulary.
            values = logits.gather(-1, targets)[..., 0] - logits.logsumexp(-1)
            for row, of_piece in zip(logprobs, values.tolist(), strict=True):
                row.extend(of_piece)
        return [row[:length] for row, length in zip(logprobs, lengths, strict=True)]

    def _passes(self, ids: Any, cache: Any) -> Iterator[tuple[int, Any]]:
        """The logits of the tokens in pieces, each with its place; the cache takes them in."""
        import torch

        width = max(batches.MOST_TOKENS // len(ids), 1)
        for start in range(0, ids.shape[1], width):
            piece = ids[:, start : start + width].to(self._device)
            with torch.no_grad():  # a model in training may keep what it computes
                output = self._model(input_ids=piece, past_key_values=cache, use_cache=True)
            yield start, output.logits.float()


def _by_length(request: ScoreRequest) -> tuple[int, Sequence[int]]:
    return len(request.token_ids), request.token_ids


def split_by_start(requests: Sequence[ScoreRequest]) -> tuple[int, list[Sequence[ScoreRequest]]]:
    """Cut requests, sorted by tokens, into runs that read few: the cost in tokens, and the runs.

    A run reads what its texts begin with once, and costs `_PASS_TOKENS` besides. A part that saves
    no more than that stays with the others.

    >>> texts = [(1, *range(40), 8), (1, *range(40), 9), (2, 8), (3, 9)]
    >>> requests = [ScoreRequest("", text, "", (0, 0)) for text in texts]
    >>> [len(run) for run in split_by_start(requests)[1]]
    [2, 2]
    """
    first_ids, last_ids = requests[0].token_ids, requests[-1].token_ids
    n_shared = len(shared_start([first_ids, last_ids]))  # sorted: those between share it, too
    cost, runs, joined_requests = 0, list[Sequence[ScoreRequest]](), list[ScoreRequest]()
    parts = groupby(requests, key=lambda request: request.token_ids[n_shared : n_shared + 1])
    for part in [requests] if first_ids == last_ids else [[*part] for _, part in parts]:
        joined_cost = sum(len(request.token_ids) - n_shared for request in part)
        part_cost, part_runs = (
            (joined_cost, []) if len(part) == 1 or part is requests else split_by_start(part)
        )
        if part_cost < joined_cost:
            cost, runs = cost + part_cost, runs + part_runs
        else:
            cost, joined_requests = cost + joined_cost, [*joined_requests, *part]
    if joined_requests:
        cost, runs = cost + _PASS_TOKENS + n_shared, [*runs, joined_requests]
    return cost, runs


class PseudoLikelihood:
    """A masked model that scores texts: every token is masked in turn, with the rest of its word.

    Texts of one length are read together, so that none is padded.

    Source: Kauf and Ivanova 2023, "A Better Way to Do Masked Language Model Scoring" (PLL within
    words, left to right).
    """

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer, self._device = model.to(device).eval(), tokenizer, device

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, window by window; within one, short texts first."""
        waiting = iter(requests)
        while window := list(islice(waiting, _TEXTS_PER_WINDOW)):
            window.sort(key=_by_length)
            for length, group in groupby(window, key=lambda request: len(request.token_ids)):
                yield from self._texts(list(group), max(batches.MASKED_TOKENS // max(length, 1), 1))

    def _texts(self, requests: Sequence[ScoreRequest], n_rows: int) -> Iterator[Scored]:
        """The scores of texts of one length, of which `n_rows` are read at a time."""
        import torch

        ids = torch.tensor([list(request.token_ids) for request in requests])
        words = torch.tensor([[-1 if w is None else w for w in r.words] for r in requests])
        texts, places = (words >= 0).nonzero(as_tuple=True)
        by_text: list[dict[int, float]] = [{} for _ in requests]
        for start in range(0, len(texts), n_rows):
            text, place = texts[start : start + n_rows], places[start : start + n_rows]
            is_later = torch.arange(ids.shape[1]) >= place[:, None]
            is_hidden = is_later & (words[text] == words[text, place][:, None])
            hidden = ids[text].masked_fill(is_hidden, self._tokenizer.mask_token_id)
            logprobs = self._logprobs(hidden, place, ids[text, place]).tolist()
            for row, column, logprob in zip(text.tolist(), place.tolist(), logprobs, strict=True):
                by_text[row][column] = logprob
        for request, by_place in zip(requests, by_text, strict=True):
            yield _sum_places(request, by_place)

    def _logprobs(self, hidden: Any, places: Any, targets: Any) -> Any:
        """The log-probability of the token that stood at a place of each masked text."""
        import torch

        ids, targets = hidden.to(self._device), targets.to(self._device)
        with torch.inference_mode():
            logits = batches.logits_at(self._model, range(len(ids)), places, input_ids=ids).float()
            return logits.gather(-1, targets[:, None])[:, 0] - logits.logsumexp(-1)


def _sum_places(request: ScoreRequest, logprobs: Mapping[int, float]) -> Scored:
    start, end = request.span
    entity = [logprobs[place] for place in range(start, end) if place in logprobs]
    return Scored(
        request_id=request.request_id,
        n_tokens=len(logprobs),
        logprob=math.fsum(logprobs.values()) if logprobs else None,
        entity_n_tokens=end - start,
        entity_logprob=math.fsum(entity) if entity and len(entity) == end - start else None,
        n_prompt_tokens=len(request.token_ids) * len(logprobs),
        n_cached_tokens=0,
    )
