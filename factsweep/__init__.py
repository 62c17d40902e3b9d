"""Measure what language models know, from Python; the same as the verbs of the command line.

    import factsweep

    print(factsweep.plan("sweep=demo"))
    demo = factsweep.run("sweep=demo")
    demo.metrics.filter(metric="acc_at_1")

Overrides are those of the command line, as strings or by keyword: `run(model="gpt2", seed=1)`. What
is wrong with them raises `InputError`, one sentence. `run` starts Ray and the engines, and ends
them before it returns.
"""

import os
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from factsweep.operators.errors import DecodingError, FactsweepError, InputError
    from factsweep.pipeline.commands.api import Planned, estimate, plan, prompts, run, score
    from factsweep.pipeline.commands.trainer_callback import FactsweepCallback
    from factsweep.pipeline.results.results import Results, load

__all__ = [
    "DecodingError",
    "FactsweepCallback",
    "FactsweepError",
    "InputError",
    "Planned",
    "Results",
    "estimate",
    "load",
    "plan",
    "prompts",
    "run",
    "score",
]

# After each product NumPy's threads would look for the next one for a fortieth of a second, on
# cores that others need: a tenth of the time of measuring. Read when NumPy is loaded.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

_MODULES = {
    "Results": "results.results",
    "load": "results.results",
    "FactsweepCallback": "commands.trainer_callback",
}
_ERRORS = ("DecodingError", "FactsweepError", "InputError")


def __getattr__(name: str) -> Any:
    """A public name, from its module; only then is anything imported that takes time (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _ERRORS:
        return getattr(import_module("factsweep.operators.errors"), name)
    module = _MODULES.get(name, "commands.api")
    value = getattr(import_module(f"factsweep.pipeline.{module}"), name)
    return value if isinstance(value, type) else _raise_without_causes(value)


@cache
def _raise_without_causes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; a notebook shows its errors without the tracebacks of their causes."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        from factsweep.operators.errors import FactsweepError

        try:
            return function(*args, **kwargs)
        except FactsweepError as error:
            raise error from None

    return call


def __dir__() -> list[str]:
    """The public names."""
    return __all__
