"""What every benchmark measures in: a process of its own."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def in_fresh_process(work: Callable[..., T], *arguments: Any) -> T:
    """What some work returns, in a fresh process, which takes its engine along when it ends."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=fresh) as pool:
        return pool.submit(work, *arguments).result()
