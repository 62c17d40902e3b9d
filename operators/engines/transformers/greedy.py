"""A causal model of transformers that continues prompts greedily, as a training measures it."""

from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from itertools import groupby, takewhile
from typing import Any

from factsweep.operators.engines.answer_text import cut_at_stops
from factsweep.operators.engines.protocol import Answer, Completion, Request
from factsweep.operators.engines.transformers.batches import MOST_TOKENS, cut_batches
from factsweep.operators.errors import InputError


class Greedy:
    """A causal model that continues prompts greedily; a batch has prompts of one length.

    So nothing is padded. The model stays where it is, and only its own forward pass is called.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        ends = getattr(model.generation_config, "eos_token_id", None)
        self._ends = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        parameters = signature(type(base).forward).parameters
        last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._options = {"use_cache": True, **last_only}

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer for each request, short prompts first."""
        by_length = sorted(requests, key=lambda request: len(request.token_ids))
        for _, requests_of_length in groupby(by_length, lambda r: (len(r.token_ids), r.sampling)):
            for batch in cut_batches(requests_of_length, lambda r: len(r.token_ids), MOST_TOKENS):
                yield from self._continue(batch)

    def _continue(self, batch: Sequence[Request]) -> Iterator[Answer]:
        import torch

        sampling = batch[0].sampling
        written: list[list[int]] = [[] for _ in batch]
        reasons: dict[int, str] = {}
        inputs, cache = torch.tensor([r.token_ids for r in batch], device=self._model.device), None
        with torch.no_grad():
            while len(reasons) < len(batch) and len(written[0]) < sampling.max_tokens:
                output = self._model(input_ids=inputs, past_key_values=cache, **self._options)
                tokens = output.logits[:, -1].argmax(-1)
                inputs, cache = tokens[:, None], output.past_key_values
                if cache is None:
                    name = type(self._model).__name__
                    raise InputError(f"{name} keeps no keys and values; it cannot be continued.")
                for row, token in enumerate(tokens.tolist()):
                    written[row].append(token)
                    if row not in reasons and self._has_ended(written[row], sampling.stop):
                        reasons[row] = "stop"
        for row, (request, tokens) in enumerate(zip(batch, written, strict=True)):
            ids = list(takewhile(lambda token: token not in self._ends, tokens))
            text = cut_at_stops(self._decode(ids), sampling.stop)
            completion = Completion(text, len(ids), None, reasons.get(row, "length"))
            yield Answer(request.request_id, (completion,), len(request.token_ids), 0)

    def _has_ended(self, ids: Sequence[int], stops: tuple[str, ...]) -> bool:
        if ids[-1] in self._ends:
            return True
        text = self._decode(ids)
        return cut_at_stops(text, stops) != text

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))
