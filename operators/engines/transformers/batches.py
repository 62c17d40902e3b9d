"""Batches of token ids, for all models of transformers."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

# Tokens of a batch of texts, prefix and padding included. A longer text is read in pieces, since
# the logits of a pass are a table of tokens × vocabulary.
MOST_TOKENS = 2048
MASKED_TOKENS = 8192  # of masked texts, of which one place has logits


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
