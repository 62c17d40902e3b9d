"""Models of transformers as engines, in bounded batches: they fill masks, score, or compare.

Causal models read the prefix of a group of texts once, up to its last token, and keep its keys and
values; the rest of the texts follows in batches. Texts are padded on the right, and a causal model
never looks ahead: no attention mask is needed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from inspect import signature
from itertools import groupby, islice, takewhile
from typing import Any, NamedTuple, TypeVar

from factsweep.operators.engines.answer_text import cut_at_stops
from factsweep.operators.engines.preference import (
    Beams,
    BeamsRequest,
    Branch,
    BranchLogprobs,
    PreferenceResult,
    PreferRequest,
    preferences,
)
from factsweep.operators.engines.protocol import (
    Answer,
    Completion,
    EngineKind,
    MaskedRequest,
    Prediction,
    Request,
    Scored,
    ScoreRequest,
    Start,
    cpu_build,
    find_installed,
    precision,
)
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.tokens import shared_start

T = TypeVar("T")

# Masked prompts are sorted by length within a window, so that they need little padding.
_PROMPTS_PER_WINDOW = 4096
_TEXTS_PER_WINDOW = 512  # that are scored by a masked model, each once per token
_MASKED_TOKENS = 8192  # of a batch
# Of a batch of texts, prefix and padding included. A longer text is scored in pieces, since the
# logits of a pass are a table of tokens × vocabulary.
_SCORED_TOKENS = 2048


def cut_batches(texts: Iterable[T], length: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Cut texts, sorted by length, into batches of at most so many tokens, padding included."""
    batch: list[T] = []
    for text in texts:
        if batch and (len(batch) + 1) * length(text) > most:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def pad_rows(rows: Sequence[Sequence[int]], padding: int = 0) -> Any:
    """The rows as a tensor, padded behind: rows × the longest."""
    import torch

    table = torch.full((len(rows), max(map(len, rows))), padding, dtype=torch.long)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = torch.tensor(values, dtype=torch.long)
    return table


def logits_at(model: Any, rows: Sequence[int], places: Sequence[int], **inputs: Any) -> Any:
    """The logits at places of some rows: places × vocabulary; the head reads no other place."""

    def at_places(_encoder: Any, _inputs: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[rows, places].unsqueeze(1)
        return output

    with model.base_model.register_forward_hook(at_places):
        return model(**inputs, return_dict=True).logits[:, 0]


def masked_logits(
    model: Any, tokenizer: Any, device: str, texts: Sequence[Sequence[int]], places: Sequence[int]
) -> Any:
    """The logits of a masked model at one place of each text: texts × vocabulary."""
    ids = pad_rows(texts, tokenizer.pad_token_id).to(device)
    attended = pad_rows([[1] * len(text) for text in texts]).to(device)
    return logits_at(model, range(len(texts)), places, input_ids=ids, attention_mask=attended)


class MaskedLM:
    """A transformers model for masked language modelling; batches depend on requests' order."""

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer, self._device = model.to(device).eval(), tokenizer, device

    def predictions(self, requests: Iterable[MaskedRequest]) -> Iterator[Prediction]:
        """One prediction for each request, window by window; within one, short prompts first.

        Raises:
            ValueError: a request has not exactly one mask.
        """
        waiting = iter(requests)
        while window := list(islice(waiting, _PROMPTS_PER_WINDOW)):
            window.sort(key=lambda request: len(request.token_ids))
            for batch in cut_batches(window, lambda r: len(r.token_ids), _MASKED_TOKENS):
                yield from self._predict(batch)

    def _predict(self, batch: Sequence[MaskedRequest]) -> Iterator[Prediction]:
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
            yield Prediction(request.request_id, token_id, token, probability, unpadded)

    def _logits(self, batch: Sequence[MaskedRequest]) -> Any:
        """The logits at each request's mask: requests × vocabulary."""
        for r in batch:
            if (n := list(r.token_ids).count(self._tokenizer.mask_token_id)) != 1:
                raise ValueError(f"request {r.request_id} has {n} masks instead of one")
        mask_places = [list(r.token_ids).index(self._tokenizer.mask_token_id) for r in batch]
        texts = [r.token_ids for r in batch]
        return masked_logits(self._model, self._tokenizer, self._device, texts, mask_places)


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
            for batch in cut_batches(
                requests_of_length, lambda r: len(r.token_ids), _SCORED_TOKENS
            ):
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


class Likelihood:
    """A transformers model for causal language modelling; batches depend on a group alone."""

    def __init__(self, model: Any, *, device: str | None = "cpu") -> None:
        """Take a model and move it, or leave it where it is (null): one that is in training."""
        self._model = (model if device is None else model.to(device)).eval()
        self._device = device or model.device

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, group by group; within one, short texts first."""
        for _, group in groupby(requests, key=lambda request: request.group):
            by_length = sorted(group, key=lambda r: (len(r.token_ids), r.token_ids))
            yield from self._group(by_length)

    def _group(self, requests: Sequence[ScoreRequest]) -> Iterator[Scored]:
        from transformers import DynamicCache

        shared = shared_start([request.token_ids for request in requests])
        n_read = max(len(shared) - 1, 0)
        cache = DynamicCache(config=self._model.config)
        (prefix_logprobs,) = self._logprobs([shared], cache)
        n_cached_tokens = 0  # the prefix was read for the first text
        for batch in cut_batches(requests, lambda r: len(r.token_ids), _SCORED_TOKENS):
            texts = [request.token_ids[n_read:] for request in batch]
            copies = deepcopy(cache)
            copies.batch_repeat_interleave(len(batch))
            for request, behind in zip(batch, self._logprobs(texts, copies), strict=True):
                yield Scored.of(request, prefix_logprobs + behind, n_cached_tokens=n_cached_tokens)
                n_cached_tokens = n_read

    def _logprobs(self, texts: Sequence[Sequence[int]], cache: Any) -> list[list[float]]:
        """Of each text's tokens from the second on; the cache takes in all but the last."""
        import torch

        lengths = [max(len(text) - 1, 0) for text in texts]
        ids = pad_rows(texts).to(self._device)
        logprobs: list[list[float]] = [[] for _ in texts]
        width = max(_SCORED_TOKENS // len(texts), 1)
        for start in range(0, max(lengths), width):
            stop = min(start + width, max(lengths))
            piece, targets = ids[:, start:stop], ids[:, start + 1 : stop + 1, None]
            with torch.no_grad():  # a model in training may keep what it computes
                logits = self._model(input_ids=piece, past_key_values=cache, use_cache=True).logits
                values = logits.float().log_softmax(-1).gather(-1, targets)[..., 0].tolist()
            for row, of_piece in zip(logprobs, values, strict=True):
                row.extend(of_piece)
        return [row[:length] for row, length in zip(logprobs, lengths, strict=True)]


class PseudoLikelihood:
    """A masked model that scores texts: every token is masked in turn, with the rest of its word.

    Source: Kauf and Ivanova 2023, "A Better Way to Do Masked Language Model Scoring" (PLL within
    words, left to right).
    """

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer, self._device = model.to(device).eval(), tokenizer, device

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, window by window; within one, short texts first."""
        waiting = iter(requests)
        while window := list(islice(waiting, _TEXTS_PER_WINDOW)):
            window.sort(key=lambda request: (len(request.token_ids), request.token_ids))
            logprobs: dict[str, dict[int, float]] = {r.request_id: {} for r in window}
            masked_texts = (text for request in window for text in self._mask_tokens(request))
            for batch in cut_batches(
                masked_texts, lambda text: len(text.token_ids), _MASKED_TOKENS
            ):
                for text, logprob in zip(batch, self._logprobs(batch), strict=True):
                    logprobs[text.request_id][text.place] = logprob
            for request in window:
                yield _sum_places(request, logprobs[request.request_id])

    def _mask_tokens(self, request: ScoreRequest) -> Iterator["_MaskedText"]:
        """The text with each of its tokens masked, and with the later tokens of the same word."""
        mask, ids, words = self._tokenizer.mask_token_id, request.token_ids, request.words
        for place, word in enumerate(words):
            if word is not None:
                hidden = [
                    mask if later >= place and words[later] == word else token
                    for later, token in enumerate(ids)
                ]
                yield _MaskedText(request.request_id, place, hidden, ids[place])

    def _logprobs(self, batch: Sequence["_MaskedText"]) -> list[float]:
        """The log-probability of each text's token at its place."""
        import torch

        texts, places = [text.token_ids for text in batch], [text.place for text in batch]
        targets = torch.tensor([text.target for text in batch], device=self._device)
        with torch.inference_mode():
            logits = masked_logits(self._model, self._tokenizer, self._device, texts, places)
            values = logits.float().log_softmax(-1).gather(-1, targets[:, None])[:, 0]
        return [float(value) for value in values.tolist()]


class _MaskedText(NamedTuple):
    """A text in which the token of a place is masked, and the token that stood there."""

    request_id: str
    place: int
    token_ids: Sequence[int]
    target: int


def _sum_places(request: ScoreRequest, logprobs: Mapping[int, float]) -> Scored:
    """The score of a text from the log-probabilities of its tokens, by place."""
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


class CandidatesLM:
    """A causal model that compares entities behind a cloze, and continues clozes by beams."""

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer, self._device = model.to(device).eval(), tokenizer, device

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[PreferenceResult]:
        """One answer for each request, in their order."""
        return preferences(requests, self._read_branches, n_at_once=1, reuses_cloze=True)

    def _read_branches(self, branches: Sequence[Branch]) -> list[BranchLogprobs]:
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
        logprobs = dict[int, BranchLogprobs]()
        by_length = sorted(read_with, key=lambda index: len(texts[index]))
        for batch in cut_batches(by_length, lambda index: len(texts[index]), _SCORED_TOKENS):
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
                logprobs[index] = BranchLogprobs(of_tokens, ending)
        return [logprobs[index] for index in range(len(branches))]

    def _logits(
        self,
        texts: Sequence[Sequence[int]],
        rows: Sequence[int],
        places: Sequence[int],
        cache: Any,
    ) -> Any:
        import torch

        inputs = {"input_ids": pad_rows(texts).to(self._device), "past_key_values": cache}
        with torch.inference_mode():
            return logits_at(self._model, rows, places, **inputs, use_cache=True)

    def beams(self, requests: Iterable[BeamsRequest]) -> Iterator[Beams]:
        """One answer for each request, in their order."""
        tokenizer = self._tokenizer
        for request in requests:
            beams, n = self._search(request), len(request.token_ids)
            logprobs = self._model.compute_transition_scores(
                beams.sequences, beams.scores, beams.get("beam_indices"), normalize_logits=True
            )
            first = beams.scores[0][0].topk(min(request.top_tokens, beams.scores[0].shape[-1]))
            yield Beams(
                request.request_id,
                tokenizer.batch_decode(beams.sequences[:, n:], skip_special_tokens=True),
                logprobs.double().sum(-1).tolist(),
                tokenizer.batch_decode(first.indices[:, None]),
                n_prompt_tokens=n,
                n_tokens=beams.sequences.shape[1] - n,
            )

    def _search(self, request: BeamsRequest) -> Any:
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


def load(start: Start) -> MaskedLM | Likelihood | PseudoLikelihood | CandidatesLM:
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


def _load_pretrained(kind: Any, start: Start) -> Any:
    import torch

    return kind.from_pretrained(
        start.model,
        revision=start.revision,
        dtype=getattr(torch, start.dtype),
        trust_remote_code=start.trust_remote_code,
    )


KIND = EngineKind(
    name="transformers",
    version=lambda: find_installed("transformers"),
    load=load,
    abilities=frozenset({"fill", "score", "prefer"}),
    install="install it with pip install transformers",
    gpus="one",
    switches=precision,
    cpu_build=cpu_build,
)
