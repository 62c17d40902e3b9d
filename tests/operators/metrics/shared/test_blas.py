"""Linear algebra in one thread."""

from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from factsweep.operators.estimates import table
from factsweep.operators.estimates.table import Scored, estimates
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas


def n_threads() -> set[int]:
    return {int(pool["num_threads"]) for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    np.linalg.eigh(np.eye(2))  # loads the library
    with threadpool_limits(2, user_api="blas"):
        yield


def test_blas_has_one_thread_inside_and_its_own_number_outside() -> None:
    assert n_threads() == {2}
    with single_threaded_blas():
        with single_threaded_blas():
            assert n_threads() == {1}
        assert n_threads() == {1}
    assert n_threads() == {2}
    with pytest.raises(ValueError, match="inside"), single_threaded_blas():
        raise ValueError("inside")
    assert n_threads() == {2}


def test_estimates_are_made_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: set[int] = set()

    def stop(*_: object, **__: object) -> None:
        counts.update(n_threads())
        raise InterruptedError

    monkeypatch.setattr(table, "of_full_run", stop)
    with pytest.raises(InterruptedError):
        estimates(Scored(*[None] * len(Scored._fields)), seed=0)  # type: ignore[arg-type]
    assert counts == {1}
    assert n_threads() == {2}
