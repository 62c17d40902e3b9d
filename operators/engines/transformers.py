"""Models of transformers as engines, in bounded batches: they fill masks, score, or compare.

Causal models read what texts begin with once, and keep its keys and values; the rest of the texts
follows in batches. Texts are padded on the right, and a causal model never looks ahead: no
attention mask is needed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from inspect import signature
from itertools import groupby, islice, takewhile
from typing import Any, TypeVar

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
_SCORED_TEXTS = 4096  # whose shared beginnings are found
_PASS_TOKENS = 32  # that a pass more costs: it reads all weights


def cut_batches(
    texts: Iterable[T], length: Callable[[T], int], most: int, most_padding: float = math.inf
) -> Iterator[list[T]]:
    """Cut texts, sorted by length, into batches of at most so many tokens, padding included."""
    batch: list[T] = []
    padding = 0
    for text in texts:
        added = (length(text) - length(batch[-1])) * len(batch) if batch else 0
        is_full = (len(batch) + 1) * length(text) > most or padding + added > most_padding
        if batch and is_full:
            yield batch
            batch, padding, added = [], 0, 0
        batch.append(text)
        padding += added
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
    """A transformers model for causal language modelling, which reads shared beginnings once.

    In float32 these are found in windows of requests, across groups; with less precision, batches
    depend on a group alone, since the sums depend on the batch.
    """

    def __init__(self, model: Any, *, device: str | None = "cpu") -> None:
        """Take a model and move it, or leave it where it is (null): one that is in training."""
        self._model = (model if device is None else model.to(device)).eval()
        self._device = device or model.device

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, by what texts begin with; within that, short texts first."""
        import torch

        if getattr(self._model, "dtype", None) != torch.float32:
            for _, group in groupby(requests, key=lambda request: request.group):
                yield from self._group(sorted(group, key=_by_length))
            return
        waiting = iter(requests)
        while window := list(islice(waiting, _SCORED_TEXTS)):
            for run in split_by_start(sorted(window, key=lambda r: tuple(r.token_ids))):
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
        limits = _SCORED_TOKENS, _PASS_TOKENS
        for batch in cut_batches(requests, lambda r: len(r.token_ids), *limits):
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
        for start, logits in self._passes(pad_rows([shared]), cache) if shared else ():
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
        ids = pad_rows(texts).to(self._device)
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

        width = max(_SCORED_TOKENS // len(ids), 1)
        for start in range(0, ids.shape[1], width):
            piece = ids[:, start : start + width].to(self._device)
            with torch.no_grad():  # a model in training may keep what it computes
                output = self._model(input_ids=piece, past_key_values=cache, use_cache=True)
            yield start, output.logits.float()


def _by_length(request: ScoreRequest) -> tuple[int, Sequence[int]]:
    return len(request.token_ids), request.token_ids


def split_by_start(requests: Sequence[ScoreRequest]) -> list[Sequence[ScoreRequest]]:
    """Cut requests, sorted by their tokens, into runs that need few tokens to be read.

    A run reads what its texts begin with once, and costs `_PASS_TOKENS` besides. A part that saves
    no more than that stays with the others.

    >>> texts = [(1, *range(40), 8), (1, *range(40), 9), (2, 8), (3, 9)]
    >>> requests = [ScoreRequest("", text, "", (0, 0)) for text in texts]
    >>> [len(run) for run in split_by_start(requests)]
    [2, 2]
    """
    return _split(requests)[1]


def _split(requests: Sequence[ScoreRequest]) -> tuple[int, list[Sequence[ScoreRequest]]]:
    """The tokens that are read, and the runs."""
    first, last = requests[0].token_ids, requests[-1].token_ids
    n_shared = len(shared_start([first, last]))  # sorted: those between share it, too
    cost, runs, together = 0, list[Sequence[ScoreRequest]](), list[ScoreRequest]()
    parts = groupby(requests, key=lambda request: request.token_ids[n_shared : n_shared + 1])
    for part in [requests] if first == last else [[*part] for _, part in parts]:
        joined_cost = sum(len(request.token_ids) - n_shared for request in part)
        part_cost, part_runs = (
            (joined_cost, []) if len(part) == 1 or part is requests else _split(part)
        )
        if part_cost < joined_cost:
            cost, runs = cost + part_cost, runs + part_runs
        else:
            cost, together = cost + joined_cost, [*together, *part]
    if together:
        cost, runs = cost + _PASS_TOKENS + n_shared, [*runs, together]
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
                yield from self._texts(list(group), max(_MASKED_TOKENS // max(length, 1), 1))

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
            logits = logits_at(self._model, range(len(ids)), places, input_ids=ids).float()
            return logits.gather(-1, targets[:, None])[:, 0] - logits.logsumexp(-1)


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
