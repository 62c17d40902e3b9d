"""Linear algebra in one thread, where matrices are small.

OpenBLAS splits even small products among all cores, and its threads wait for each other actively.
On two busy cores an estimate over 4,100 templates took 109 s so, and 5 s in one thread. So the
steps that estimate, measure and compare run inside of this.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit the BLAS of NumPy and SciPy to one thread; as a context or as a decorator.

    The limit is the process's; of several threads the first sets it, and lifts it when it is done
    (threadpoolctl). Other libraries (Polars, torch) keep their threads.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
