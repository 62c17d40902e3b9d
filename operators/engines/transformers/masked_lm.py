"""Masked language models (BERT, ALBERT) as an engine: what stands at the mask."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from factsweep.operators.engines.transformers.batches import bounded, padded

# Prompts are sorted by length within a window, so that they need little padding.
_PROMPTS_PER_WINDOW = 4096
_TOKENS_PER_BATCH = 8192


@dataclass(frozen=True)
class MaskedRequest:
    """A prompt as token ids, exactly one of which is the mask, and the tokens asked after."""

    request_id: str
    token_ids: Sequence[int]
    candidate_ids: Sequence[int]


@dataclass(frozen=True)
class Prediction:
    """The most probable token at the mask, as it stands in the vocabulary, and its probability.

    `candidate_probabilities` are those of the request's candidates, in their order. All are shares
    of the whole vocabulary.
    """

    request_id: str
    token_id: int
    token: str
    probability: float
    candidate_probabilities: list[float]


def _length(request: MaskedRequest) -> int:
    return len(request.token_ids)


class MaskedLM:
    """A transformers model for masked language modelling, on a device.

    Batches are padded, and padding changes a probability in its last digits: only requests that
    come in the same order get the very same numbers.
    """

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer, self._device = model.to(device).eval(), tokenizer, device

    def predictions(self, requests: Iterable[MaskedRequest]) -> Iterator[Prediction]:
        """One prediction for each request, window by window; within one, short prompts first.

        Raises:
            ValueError: a request has not exactly one mask.
        """
        waiting = iter(requests)
        while window := list(islice(waiting, _PROMPTS_PER_WINDOW)):
            window.sort(key=_length)
            for batch in bounded(window, _length, _TOKENS_PER_BATCH):
                yield from self._predict(batch)

    def _predict(self, batch: Sequence[MaskedRequest]) -> Iterator[Prediction]:
        import torch

        with torch.inference_mode():
            probabilities = self._logits(batch).float().softmax(dim=-1)
            best = probabilities.max(dim=-1)
            asked = padded([r.candidate_ids for r in batch]).to(self._device)
            candidates = probabilities.gather(1, asked).tolist()
        tokens = self._tokenizer.convert_ids_to_tokens(best.indices.tolist())
        columns = (best.indices.tolist(), tokens, best.values.tolist(), candidates)
        for request, token_id, token, probability, shares in zip(batch, *columns, strict=True):
            own = shares[: len(request.candidate_ids)]
            yield Prediction(request.request_id, token_id, token, probability, own)

    def _logits(self, batch: Sequence[MaskedRequest]) -> Any:
        """The logits at each request's mask: requests × vocabulary."""
        import torch

        ids = padded([r.token_ids for r in batch], self._tokenizer.pad_token_id).to(self._device)
        attended = padded([[1] * len(r.token_ids) for r in batch]).to(self._device)
        places = torch.tensor([_mask_place(r, self._tokenizer.mask_token_id) for r in batch])
        places = places.to(self._device)

        def at_places(_encoder: Any, _inputs: Any, output: Any) -> Any:
            hidden = output.last_hidden_state
            output.last_hidden_state = hidden[range(len(hidden)), places].unsqueeze(1)
            return output

        # The head sees one position per text: logits of the whole vocabulary are large.
        with self._model.base_model.register_forward_hook(at_places):
            output = self._model(input_ids=ids, attention_mask=attended, return_dict=True)
        return output.logits[:, 0]


def _mask_place(request: MaskedRequest, mask_id: int) -> int:
    places = [place for place, token in enumerate(request.token_ids) if token == mask_id]
    if len(places) != 1:
        raise ValueError(f"request {request.request_id} has {len(places)} masks instead of one")
    return places[0]
