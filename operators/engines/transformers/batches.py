"""Texts in batches of a bounded size: padding costs as much as text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def bounded(texts: Iterable[T], length: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Cut texts, sorted by length, into batches of at most so many tokens, padding included.

    A longer text is a batch of its own.
    """
    batch: list[T] = []
    for text in texts:
        if batch and (len(batch) + 1) * length(text) > most:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]], padding: int = 0) -> Any:
    """The rows as a tensor, padded behind: rows × the longest."""
    import torch

    table = torch.full((len(rows), max(map(len, rows))), padding, dtype=torch.long)
    for row, values in zip(table, rows, strict=True):
        row[: len(values)] = torch.tensor(values, dtype=torch.long)
    return table
