"""Texts in batches of a bounded size: padding costs as much as text."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

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
