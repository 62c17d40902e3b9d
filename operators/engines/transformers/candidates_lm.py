"""Causal models of transformers that compare entities behind a cloze, and search by beams."""

from collections.abc import Iterable, Iterator
from typing import Any

from factsweep.operators.engines.preference import (
    Beams,
    BeamsRequest,
    Preferred,
    PreferRequest,
    Reader,
    preferred,
)
from factsweep.operators.engines.transformers import trie_readers


class CandidatesLM:
    """A transformers model for causal language modelling, on a device, with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer = model.to(device).eval(), tokenizer
        self._reads_trees = trie_readers.reads_trees(self._model)

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[Preferred]:
        """One answer for each request, in their order."""
        for request in requests:
            yield preferred(request, self._reader(request))

    def _reader(self, request: PreferRequest) -> Reader:
        longest = len(request.token_ids) + max(request.trie.depth)
        # A mask of one's own replaces that of a model whose layers look back a few tokens only.
        window = getattr(self._model.config.get_text_config(), "sliding_window", None)
        whole = self._reads_trees and (window is None or longest <= window)
        kind = trie_readers.TreeReader if whole else trie_readers.PathReader
        return kind(self._model, request.token_ids, request.trie, request.ending)

    def beams(self, requests: Iterable[BeamsRequest]) -> Iterator[Beams]:
        """One answer for each request, in their order."""
        for request in requests:
            yield self._beams(request)

    def _beams(self, request: BeamsRequest) -> Beams:
        found = self._searched(request)
        n, tokenizer = len(request.token_ids), self._tokenizer
        logprobs = self._model.compute_transition_scores(
            found.sequences, found.scores, found.get("beam_indices"), normalize_logits=True
        )
        first = found.scores[0][0].topk(min(request.top_tokens, found.scores[0].shape[-1]))
        return Beams(
            request.request_id,
            tokenizer.batch_decode(found.sequences[:, n:], skip_special_tokens=True),
            logprobs.double().sum(-1).tolist(),
            tokenizer.batch_decode(first.indices[:, None]),
            n_prompt_tokens=n,
            n_tokens=found.sequences.shape[1] - n,
        )

    def _searched(self, request: BeamsRequest) -> Any:
        import torch
        from transformers import GenerationConfig

        ids = torch.tensor([list(request.token_ids)], device=self._model.device)
        end = self._tokenizer.eos_token_id
        asked = GenerationConfig(  # whole: what the model's own says of sampling is left out
            num_beams=request.width,
            num_return_sequences=request.width,
            max_new_tokens=request.max_tokens,
            do_sample=False,
            length_penalty=0.0,  # the sum of log-probabilities, however long
            eos_token_id=end,
            pad_token_id=end,
            return_dict_in_generate=True,
            output_scores=True,
        )
        with torch.inference_mode():
            return self._model.generate(ids, asked, attention_mask=torch.ones_like(ids))
