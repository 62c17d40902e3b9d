"""Measure what language models know, from Python; the same as the verbs of the command line.

    import factsweep

    print(factsweep.plan("sweep=demo"))
    demo = factsweep.run("sweep=demo")
    demo.metrics.filter(metric="acc_at_1")

Overrides are those of the command line, as strings or by keyword: `run(model="gpt2", seed=1)`. What
is wrong with them raises `InputError`, one sentence. `run` starts Ray and the engines, and ends
them before it returns.
"""

from operators.errors import DecodingError, FactsweepError, InputError
from pipeline.api import Planned, estimate, load, plan, prompts, run, score
from pipeline.results.results import Results

__all__ = [
    "DecodingError",
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
