"""Causal language models through transformers: how probable given texts are.

The tokens that all texts of a group begin with are run once, and their keys and values kept; the
rest of each text is run after them, several texts per batch. The last shared token is part of the
batches, since the token that it predicts differs from text to text.

No attention mask is needed: texts are padded on the right, and a causal model never looks ahead.
What a token sees, and where it stands, is the same as in the text by itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import groupby
from typing import Any

from factsweep.operators.engines.protocol import Scored, ScoreRequest
from factsweep.operators.engines.transformers.batches import bounded, padded
from factsweep.operators.prompts.tokens import shared_start

# Shared tokens and padding included. A longer text is a batch of its own and is run in pieces:
# the widest table of a pass is one of tokens × vocabulary.
_TOKENS_PER_BATCH = 2048


class Likelihood:
    """A transformers model for causal language modelling, on a device.

    The composition of a batch changes a log-probability in its last digits. It depends on the texts
    of the group alone: in whichever order requests come, their batches are the same.
    """

    def __init__(self, model: Any, *, device: str = "cpu") -> None:
        self._model, self._device = model.to(device).eval(), device

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, group by group; within one, short texts first."""
        for _, group in groupby(requests, key=lambda request: request.group):
            by_length = sorted(group, key=lambda each: (len(each.token_ids), each.token_ids))
            yield from self._group(by_length)

    def _group(self, requests: Sequence[ScoreRequest]) -> Iterator[Scored]:
        from transformers import DynamicCache

        shared = shared_start([request.token_ids for request in requests])
        n_read = max(len(shared) - 1, 0)
        cache = DynamicCache(config=self._model.config)
        (before,) = self._logprobs([shared], cache)
        n_cached_tokens = 0  # the first of them is the one that they were read for
        for batch in bounded(requests, lambda each: len(each.token_ids), _TOKENS_PER_BATCH):
            own = [request.token_ids[n_read:] for request in batch]
            copies = deepcopy(cache)
            copies.batch_repeat_interleave(len(batch))
            for request, behind in zip(batch, self._logprobs(own, copies), strict=True):
                yield Scored.of(request, before + behind, n_cached_tokens=n_cached_tokens)
                n_cached_tokens = n_read

    def _logprobs(self, texts: Sequence[Sequence[int]], cache: Any) -> list[list[float]]:
        """Of each text's tokens from the second on; the cache takes in all but the last."""
        lengths = [max(len(text) - 1, 0) for text in texts]
        ids = padded(texts)
        found: list[list[float]] = [[] for _ in texts]
        width = max(_TOKENS_PER_BATCH // len(texts), 1)
        for start in range(0, max(lengths), width):
            stop = min(start + width, max(lengths))
            read, asked = ids[:, start:stop], ids[:, start + 1 : stop + 1]
            for logprobs, piece in zip(found, self._step(read, asked, cache), strict=True):
                logprobs.extend(piece)
        return [row[:length] for row, length in zip(found, lengths, strict=True)]

    def _step(self, read: Any, asked: Any, cache: Any) -> Any:
        """The log-probability of each token asked for, behind the tokens read up to its place."""
        import torch

        with torch.inference_mode():
            read, asked = read.to(self._device), asked.to(self._device)
            logits = self._model(input_ids=read, past_key_values=cache, use_cache=True).logits
            return logits.float().log_softmax(-1).gather(-1, asked[..., None])[..., 0].tolist()
