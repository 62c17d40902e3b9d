"""Texts in batches of a bounded size: padding costs as much as text."""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class Tokenised(Protocol):
    """A request for a text as token ids."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The whole text."""
        ...


T = TypeVar("T", bound=Tokenised)


def bounded(requests: Sequence[T], tokens: int) -> Iterator[Sequence[T]]:
    """Cut requests, sorted by length, into batches of at most so many tokens, padding included.

    A longer text is a batch of its own.
    """
    batch: list[T] = []
    for request in requests:
        if batch and (len(batch) + 1) * len(request.token_ids) > tokens:
            yield batch
            batch = []
        batch.append(request)
    if batch:
        yield batch
