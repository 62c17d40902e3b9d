"""Models of transformers as engines, in bounded batches: they fill masks, score, or compare.

`likelihood.py` has the models that score texts, `greedy.py` one that continues prompts.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

from factsweep.operators.engines import preference, protocol
from factsweep.operators.engines.transformers.batches import (
    MASKED_TOKENS,
    MOST_TOKENS,
    cut_batches,
    logits_at,
    pad_rows,
)
from factsweep.operators.engines.transformers.likelihood import Likelihood, PseudoLikelihood
from factsweep.operators.prompts.tokens import shared_start

# Masked prompts are sorted by length within a window, so that they need little padding.
_PROMPTS_PER_WINDOW = 4096


class MaskedLM:
    """A transformers model for masked language modelling; batches depend on requests' order."""

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer, self._device = model.to(device).eval(), tokenizer, device

    def predictions(
        self, requests: Iterable[protocol.MaskedRequest]
    ) -> Iterator[protocol.Prediction]:
        """One prediction for each request, window by window; within one, short prompts first.

        Raises:
            ValueError: a request has not exactly one mask.
        """
        waiting = iter(requests)
        while window := list(islice(waiting, _PROMPTS_PER_WINDOW)):
            window.sort(key=lambda request: len(request.token_ids))
            for batch in cut_batches(window, lambda r: len(r.token_ids), MASKED_TOKENS):
                yield from self._predict(batch)

    def _predict(self, batch: Sequence[protocol.MaskedRequest]) -> Iterator[protocol.Prediction]:
        import torch

        with torch.inference_mode():
            probabilities = self._logits(batch).float().softmax(dim=-1)
            best = probabilities.max(dim=-1)
            candidate_ids = pad_rows([r.candidate_ids for r in batch]).to(self._device)
            candidates = probabilities.gather(1, candidate_ids).tolist()
        tokens = self._tokenizer.convert_ids_to_tokens(best.indices.tolist())
        columns = (best.indices.tolist(), tokens, best.values.tolist(), candidates)
        for request, token_id, token, probability, row in zip(batch, *columns, strict=True):
            unpadded = row[: len(request.candidate_ids)]
            yield protocol.Prediction(request.request_id, token_id, token, probability, unpadded)

    def _logits(self, batch: Sequence[protocol.MaskedRequest]) -> Any:
        """The logits at each request's mask: requests × vocabulary."""
        for r in batch:
            if (n := list(r.token_ids).count(self._tokenizer.mask_token_id)) != 1:
                raise ValueError(f"request {r.request_id} has {n} masks instead of one")
        mask_places = [list(r.token_ids).index(self._tokenizer.mask_token_id) for r in batch]
        ids = pad_rows([r.token_ids for r in batch], self._tokenizer.pad_token_id).to(self._device)
        attended = pad_rows([[1] * len(r.token_ids) for r in batch]).to(self._device)
        rows = range(len(batch))
        return logits_at(self._model, rows, mask_places, input_ids=ids, attention_mask=attended)


class CandidatesLM:
    """A causal model that compares entities behind a cloze, and continues clozes by beams."""

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer, self._device = model.to(device).eval(), tokenizer, device

    def preferences(
        self, requests: Iterable[preference.PreferRequest]
    ) -> Iterator[preference.PreferenceResult]:
        """One answer for each request, in their order."""
        return preference.preferences(requests, self._read_branches, n_at_once=1, reuses_cloze=True)

    def _read_branches(
        self, branches: Sequence[preference.Branch]
    ) -> list[preference.BranchLogprobs]:
        """Read the tokens that all texts begin with once, then the rest of each in batches.

        A text that is the beginning of another one is read with it.
        """
        import torch
        from transformers import DynamicCache

        texts = [list(branch.text) for branch in branches]
        n_read = min(len(shared_start(texts)), min(map(len, texts)) - 1)
        read_with: dict[int, list[int]] = {}
        for index in sorted(range(len(texts)), key=texts.__getitem__, reverse=True):
            # In this order, the beginning of a text follows it.
            longest = next(reversed(read_with), index)
            if texts[longest][: len(texts[index])] != texts[index]:
                longest = index
            read_with.setdefault(longest, []).append(index)
        cache = DynamicCache(config=self._model.config)
        if n_read:
            self._logits([texts[0][:n_read]], [0], [0], cache)
        logprobs = dict[int, preference.BranchLogprobs]()
        by_length = sorted(read_with, key=lambda index: len(texts[index]))
        for batch in cut_batches(by_length, lambda index: len(texts[index]), MOST_TOKENS):
            copies = deepcopy(cache)
            copies.batch_repeat_interleave(len(batch))
            rows = [row for row, longest in enumerate(batch) for _ in read_with[longest]]
            indices = [index for longest in batch for index in read_with[longest]]
            places = [len(texts[index]) - 1 - n_read for index in indices]
            logits = self._logits([texts[i][n_read:] for i in batch], rows, places, copies)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            nodes, totals = [branches[index] for index in indices], logits.logsumexp(-1)
            cells = [(row, token) for row, node in enumerate(nodes) for token in node.tokens]
            of_row, of_token = torch.tensor(cells, dtype=torch.long).reshape(-1, 2).T
            # Each transfer from a device waits for it, so a batch has only two.
            values = iter((logits[of_row, of_token] - totals[of_row]).tolist())
            by_node = zip(logits, nodes, strict=True)
            ends = torch.stack([row[list(node.ending)].logsumexp(-1) for row, node in by_node])
            endings = (ends - totals).tolist()
            for index, node, ending in zip(indices, nodes, endings, strict=True):
                of_tokens = list(islice(values, len(node.tokens)))
                logprobs[index] = preference.BranchLogprobs(of_tokens, ending)
        return [logprobs[index] for index in range(len(branches))]

    def _logits(
        self, texts: Sequence[Sequence[int]], rows: Sequence[int], places: Sequence[int], cache: Any
    ) -> Any:
        import torch

        inputs = {"input_ids": pad_rows(texts).to(self._device), "past_key_values": cache}
        with torch.inference_mode():
            return logits_at(self._model, rows, places, **inputs, use_cache=True)

    def beams(self, requests: Iterable[preference.BeamsRequest]) -> Iterator[preference.Beams]:
        """One answer for each request, in their order."""
        tokenizer = self._tokenizer
        for request in requests:
            beams, n = self._search(request), len(request.token_ids)
            logprobs = self._model.compute_transition_scores(
                beams.sequences, beams.scores, beams.get("beam_indices"), normalize_logits=True
            )
            first = beams.scores[0][0].topk(min(request.top_tokens, beams.scores[0].shape[-1]))
            yield preference.Beams(
                request.request_id,
                tokenizer.batch_decode(beams.sequences[:, n:], skip_special_tokens=True),
                logprobs.double().sum(-1).tolist(),
                tokenizer.batch_decode(first.indices[:, None]),
                n_prompt_tokens=n,
                n_tokens=beams.sequences.shape[1] - n,
            )

    def _search(self, request: preference.BeamsRequest) -> Any:
        import torch
        from transformers import GenerationConfig

        ids = torch.tensor([list(request.token_ids)], device=self._model.device)
        end = self._tokenizer.eos_token_id
        config = GenerationConfig(  # complete: the model's own settings of sampling are unused
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
            return self._model.generate(ids, config, attention_mask=torch.ones_like(ids))


def load(start: protocol.Start) -> MaskedLM | Likelihood | PseudoLikelihood | CandidatesLM:
    """The engine for the ability, with the model loaded."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    if start.ability == "score" and not start.is_masked:
        return Likelihood(_load_pretrained(AutoModelForCausalLM, start), device=start.device)
    tokenizer = AutoTokenizer.from_pretrained(
        start.model, revision=start.revision, trust_remote_code=start.trust_remote_code
    )
    if start.ability == "score":
        masked = _load_pretrained(AutoModelForMaskedLM, start)
        return PseudoLikelihood(masked, tokenizer, device=start.device)
    if start.ability == "prefer":
        return CandidatesLM(
            _load_pretrained(AutoModelForCausalLM, start), tokenizer, device=start.device
        )
    return MaskedLM(_load_pretrained(AutoModelForMaskedLM, start), tokenizer, device=start.device)


def _load_pretrained(kind: Any, start: protocol.Start) -> Any:
    import torch

    return kind.from_pretrained(
        start.model,
        revision=start.revision,
        dtype=getattr(torch, start.dtype),
        trust_remote_code=start.trust_remote_code,
    )


KIND = protocol.EngineKind(
    name="transformers",
    version=lambda: protocol.find_installed("transformers"),
    load=load,
    abilities=frozenset({"fill", "score", "prefer"}),
    install="install it with pip install transformers",
    gpus="one",
    switches=protocol.precision,
    cpu_build=protocol.cpu_build,
)
