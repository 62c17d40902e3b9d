"""Causal models of transformers that compare entities behind a cloze, and search by beams.

A trie is read node by node: the cloze and all nodes lie in one row, and a mask lets a node see the
cloze and the nodes above it. Its position is the one that it has in the label. Where a model takes
no such mask, or its attention reaches back a few tokens only, each node is a text of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from statistics import fmean
from typing import Any

from factsweep.operators.engines.preference import (
    Asked,
    Beams,
    BeamsRequest,
    Preferred,
    PreferRequest,
    Read,
    preferences,
    preferred,
)
from factsweep.operators.prompts.label_trie import Name, Trie

_TOKENS_PER_PASS = 512
_TOKENS_KEPT = 4 * _TOKENS_PER_PASS  # of a large trie, what has nothing left to read below it goes


class CandidatesLM:
    """A transformers model for causal language modelling, on a device, with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, *, device: str = "cpu") -> None:
        self._model, self._tokenizer = model.to(device).eval(), tokenizer
        self._reads_trees = reads_trees(self._model)

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[Preferred]:
        """One answer for each request, in their order."""
        # A mask of one's own replaces that of a model whose layers look back a few tokens only.
        window = getattr(self._model.config.get_text_config(), "sliding_window", None)
        for request in requests:
            longest = len(request.token_ids) + max(request.trie.depth)
            if self._reads_trees and (window is None or longest <= window):
                reader = TreeReader(self._model, request.token_ids, request.trie, request.ending)
                yield preferred(request, reader)
            else:
                yield from preferences([request], lambda asked: next_logprobs(self._model, asked))

    def beams(self, requests: Iterable[BeamsRequest]) -> Iterator[Beams]:
        """One answer for each request, in their order."""
        tokenizer = self._tokenizer
        for request in requests:
            found, n = self._search(request), len(request.token_ids)
            logprobs = self._model.compute_transition_scores(
                found.sequences, found.scores, found.get("beam_indices"), normalize_logits=True
            )
            first = found.scores[0][0].topk(min(request.top_tokens, found.scores[0].shape[-1]))
            yield Beams(
                request.request_id,
                tokenizer.batch_decode(found.sequences[:, n:], skip_special_tokens=True),
                logprobs.double().sum(-1).tolist(),
                tokenizer.batch_decode(first.indices[:, None]),
                n_prompt_tokens=n,
                n_tokens=found.sequences.shape[1] - n,
            )

    def _search(self, request: BeamsRequest) -> Any:
        import torch
        from transformers import GenerationConfig

        ids = torch.tensor([list(request.token_ids)], device=self._model.device)
        end = self._tokenizer.eos_token_id
        config = GenerationConfig(  # whole: what the model's own says of sampling is left out
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


class TreeReader:
    """Reads each node of a trie once, behind a cloze."""

    def __init__(self, model: Any, cloze: Sequence[int], trie: Trie, ending: Sequence[int]) -> None:
        from transformers import DynamicCache

        self._model, self._cloze, self._trie, self._ending = model, list(cloze), trie, list(ending)
        self.n_tokens = 0
        self._cache = DynamicCache()  # of no model: it keeps all that it is given
        self._places: dict[int, int] = {}  # of the nodes that are kept, in the cache
        self._left = [len(below) for below in trie.children]

    def read(self, nodes: Sequence[int]) -> list[Read]:
        """What the model says behind some nodes; those above them are read, or come before them."""
        reads: list[Read] = []
        start = 0
        if not self.n_tokens:
            assert nodes[0] == 0, "the root is read first: it is the end of the cloze"
            start = min(len(nodes), 1 + max(0, _TOKENS_PER_PASS - len(self._cloze)))
            starts = range(0, len(self._cloze), _TOKENS_PER_PASS)
            *pieces, last = [self._cloze[at : at + _TOKENS_PER_PASS] for at in starts]
            for piece in pieces:
                self._pass(piece, [])
            logits = self._pass(last, nodes[1:start])[len(last) - 1 :]
            reads.extend(self._reads(nodes[:start], logits))
        for at in range(start, len(nodes), _TOKENS_PER_PASS):
            part = nodes[at : at + _TOKENS_PER_PASS]
            self._forget()
            reads.extend(self._reads(part, self._pass([], part)))
        return reads

    def _pass(self, cloze: Sequence[int], nodes: Sequence[int]) -> Any:
        """The logits behind the next tokens of the cloze, then behind nodes."""
        import torch

        n_before = self._cache.get_seq_length()
        n_with_cloze = n_before + len(cloze)
        positions = [*range(n_before, n_with_cloze)]
        seen = torch.zeros(len(cloze) + len(nodes), n_with_cloze + len(nodes), dtype=torch.bool)
        seen[: len(cloze)].fill_(1).tril_(n_before)  # up to each token's own place
        for row, node in enumerate(nodes, len(cloze)):
            self._places[node] = n_before + row
            self._left[self._trie.parents[node]] -= 1
            seen[row, : len(self._cloze)] = True
            seen[row, [self._places[above] for above in self._trie.above(node)[:-1]]] = True
        positions += [len(self._cloze) - 1 + self._trie.depth[node] for node in nodes]
        self.n_tokens += len(positions)
        ids = [*cloze, *(self._trie.tokens[node] for node in nodes)]
        device, dtype = self._model.device, self._model.dtype
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
        with torch.inference_mode():
            return self._model(
                input_ids=torch.tensor([ids], device=device),
                position_ids=torch.tensor([positions], device=device),
                attention_mask=mask[None, None].to(device),
                past_key_values=self._cache,
                use_cache=True,
            ).logits[0]

    def _reads(self, nodes: Sequence[int], logits: Any) -> Iterator[Read]:
        """What is said behind each node, from its row of logits."""
        import torch

        below = [[self._trie.tokens[child] for child in self._trie.children[n]] for n in nodes]
        rows = [row for row, tokens in enumerate(below) for _ in tokens]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        whole = logits.logsumexp(-1)
        endings = (logits[:, self._ending].logsumexp(-1) - whole).tolist()
        flat = [token for tokens in below for token in tokens]
        at = torch.tensor(rows, dtype=torch.long), torch.tensor(flat, dtype=torch.long)
        children = iter((logits[at] - whole[at[0]]).tolist())
        for tokens, ending in zip(below, endings, strict=True):
            yield Read([next(children) for _ in tokens], ending)

    def _forget(self) -> None:
        """Drop the nodes below which nothing is left to read, if many are kept."""
        if len(self._places) <= _TOKENS_KEPT:
            return
        needed = {
            above for node in self._places if self._left[node] for above in self._trie.above(node)
        }
        kept = [node for node in self._places if node in needed]
        keep = [*range(len(self._cloze)), *(self._places[node] for node in kept)]
        for layer in self._cache.layers:
            layer.keys, layer.values = layer.keys[:, :, keep], layer.values[:, :, keep]
        self._places = {node: place for place, node in enumerate(kept, len(self._cloze))}


def next_logprobs(model: Any, asked: Sequence[Asked]) -> list[dict[int, float]]:
    """The log-probabilities of tokens behind texts, a pass over each text."""
    import torch

    # The logits of all places of a long text are many times as large as the model's states.
    takes_last = "logits_to_keep" in signature(model.forward).parameters
    last = {"logits_to_keep": 1} if takes_last else {}
    logprobs = []
    for text, tokens in asked:
        ids = torch.tensor([list(text)], device=model.device)
        with torch.inference_mode():
            logits = model(input_ids=ids, **last).logits[0, -1]
        row = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        logprobs.append(dict(zip(tokens, row[list(tokens)].tolist(), strict=True)))
    return logprobs


def reads_trees(model: Any) -> bool:
    """Whether a model that reads a small trie in one pass says what it says to each path alone."""
    size = min(model.config.get_text_config().vocab_size, 1000)
    cloze = [(7 * place) % size for place in range(3, 9)]
    paths = [tuple((11 * place * path) % size for place in range(1, 4)) for path in range(1, 5)]
    trie = Trie.of((Name("", str(path)), path) for path in [*paths, paths[0][:1]])
    nodes = range(len(trie.tokens))
    try:  # some models place tokens by counting, or leave the mask out
        tree = TreeReader(model, cloze, trie, [0]).read(nodes)
    except (TypeError, ValueError, RuntimeError):  # it takes no such mask, or no positions
        return False
    below = [[*(trie.tokens[child] for child in trie.children[node]), 0] for node in nodes]
    above = ([trie.tokens[node] for node in trie.above(node)[-2::-1]] for node in nodes)
    texts = [[*cloze, *path] for path in above]
    alone = next_logprobs(model, list(zip(texts, below, strict=True)))
    differences = [
        abs(logprob - logprobs[token])
        for read, tokens, logprobs in zip(tree, below, alone, strict=True)
        for token, logprob in zip(tokens, (*read.children, read.ending), strict=True)
    ]
    # Types of 16 bits round: a model that reads no trees is off by far more on average.
    return fmean(differences) < (1e-4 if model.dtype.itemsize > 2 else 0.1)
