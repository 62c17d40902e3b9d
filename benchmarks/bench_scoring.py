"""Scoring given texts with smollm2-135m: candidates a second, engine by engine.

    vLLM           VllmEngine.scores: prompt log-probabilities, no cached prefix
    transformers   Likelihood.scores: the tokens shared by a group run once, then its candidates
    HF, one by one a plain pass over each text: what one would write first

The texts are PRobELM's, as many of each prompt type. A rate leaves out the loading of the model.
One engine is alive at a time, each in a process of its own, and they take turns, since a machine is
not equally fast all the time.

    python benchmarks/bench_scoring.py [--files ../shared/data/probelm --frame 112023]
                                       [--candidates 500] [--rounds 2] [--dtype auto]
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _fresh_process import in_fresh_process

from factsweep.operators.datasets.probelm import facts_from_files
from factsweep.operators.engines.protocol import ScoreRequest, score_requests
from factsweep.operators.prompts.plausibility import PROMPT_TYPES
from factsweep.operators.prompts.plausibility import items as items_of
from factsweep.pipeline.cluster import hardware
from factsweep.pipeline.config import settings
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.plan import resolve_run

MODEL = ["model=smollm2-135m"]
MINI = Path(__file__).parents[1] / "data_catalog/mini/probelm-mini"


class Job(NamedTuple):
    """The scored texts and their precision."""

    files: Path
    frame: str
    candidates: int
    dtype: str


class Rate(NamedTuple):
    """How many candidates were scored, and in what time."""

    candidates: int
    seconds: float


def main() -> None:
    """Measure turn by turn, then print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=Path, default=MINI, help="a folder of PRobELM's files")
    parser.add_argument("--frame", default="112023", help="the file of this time frame")
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dtype", default="auto")
    args = parser.parse_args()
    dtype = resolve_run(settings.load([*MODEL, f"model.dtype={args.dtype}"])).model.dtype
    job = Job(args.files, args.frame, args.candidates, dtype)
    print(f"smollm2-135m in {dtype}")
    engines = {
        "vLLM": through_vllm,
        "transformers": through_likelihood,
        "HF, one by one": through_plain_passes,
    }
    rates: dict[str, list[Rate]] = {name: [] for name in engines}
    for _ in range(args.rounds):
        for name, work in engines.items():
            rate = in_fresh_process(work, job)
            rates[name].append(rate)
            print(
                f"{name:<16} {rate.candidates:>5,} candidates {rate.seconds:6.1f} s  "
                f"load of the machine {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    print()
    for name, turns in rates.items():
        ratio = _per_s(rates["vLLM"]) / _per_s(turns)
        print(f"{name:<16} {_per_s(turns):7.1f} candidates/s   vLLM is {ratio:5.2f} × as fast")


def _per_s(rates: Sequence[Rate]) -> float:
    return sum(rate.candidates for rate in rates) / sum(rate.seconds for rate in rates)


def through_vllm(job: Job) -> Rate:
    """vLLM, as the pipeline starts it."""
    os.environ.update(hardware.worker_variables(settings.load(MODEL)))
    from factsweep.operators.engines.protocol import Start
    from factsweep.operators.engines.vllm import VllmEngine

    folder = models.location(_weights(job))
    engine = VllmEngine(Start(folder, None, job.dtype, max_model_len=1024))
    return _timed(engine.scores, job)


def through_likelihood(job: Job) -> Rate:
    """transformers, a group at a time."""
    from factsweep.operators.engines.transformers.likelihood import Likelihood

    return _timed(Likelihood(_model(job)).scores, job)


def through_plain_passes(job: Job) -> Rate:
    """transformers, a text at a time."""
    import torch

    model = _model(job).eval()

    def scores(requests: Sequence[ScoreRequest]) -> Iterator[float]:
        for request in requests:
            ids = torch.tensor([request.token_ids])
            with torch.inference_mode():
                rows = model(ids[:, :-1], use_cache=False).logits.float().log_softmax(-1)
            yield float(rows.gather(-1, ids[:, 1:, None]).sum())

    return _timed(scores, job)


def _timed(scores: Callable[[Sequence[ScoreRequest]], Iterator[Any]], job: Job) -> Rate:
    requests = _requests(job)
    list(scores(requests[:11]))  # the first pass is slower than all others
    timed_requests = requests[11:]
    started = time.perf_counter()
    results = list(scores(timed_requests))
    return Rate(len(results), time.perf_counter() - started)


def _requests(job: Job) -> list[ScoreRequest]:
    paths = [job.files / f"{job.frame}.json", job.files / "prompts.csv"]
    facts = facts_from_files({path.name: path.read_text("utf-8") for path in paths})
    tokenizer = models.tokenizer(_weights(job))
    share = -(-job.candidates // len(PROMPT_TYPES))
    return [
        request
        for prompt_type in PROMPT_TYPES
        for request in score_requests(tokenizer, items_of(facts, prompt_type, seed=0).head(share))
    ]


def _weights(job: Job) -> models.Weights:
    return models.resolve(settings.load([*MODEL, f"model.dtype={job.dtype}"]).model)


def _model(job: Job) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, job.dtype)
    return AutoModelForCausalLM.from_pretrained(models.location(_weights(job)), dtype=dtype)


if __name__ == "__main__":
    main()
