"""Comparing candidates behind clozes with smollm2-135m: candidates a second, way by way.

    trie             the engine transformers: each cloze once, then the nodes of the trie in batches
    one by one       a plain pass over each whole text: what one would write first
    vLLM, by nodes   the engine vllm: each node of the trie a prompt, with the tokens asked for
    vLLM, default    prompt log-probabilities of each whole text, its end of text included
    vLLM, by rows    the engine vllm: each path of the trie a prompt, with the tokens asked for in
                     each of its rows behind the cloze in the prefix cache: vLLM's model runner V2,
                     which needs Triton

All sum up the same labels, and end them alike (`eos`). A candidate is an entity with all its
labels. Then the searches: `optimal` and `exact`, the 100 most plausible of many, by trie and vLLM.

A rate leaves out the loading of the model. One engine is alive at a time, each in a process of its
own, and they take turns, since a machine is not equally fast all the time.

With $FACTSWEEP_TRITON, a folder with Triton (pip install --no-deps --target), its interpreter runs
V2's kernels on a CPU: the sums agree or not, and the times say nothing.

    python benchmarks/bench_trie.py [--clozes 4] [--candidates 101] [--rounds 2] [--searched 600]
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from _fresh_process import in_fresh_process

from factsweep.operators.engines.preference import PreferRequest, Search, log_sum
from factsweep.operators.engines.protocol import ScoreRequest
from factsweep.operators.engines.transformers import CandidatesLM
from factsweep.operators.prompts.clozes import ending_tokens
from factsweep.operators.prompts.label_trie import Labels, Name
from factsweep.pipeline.cluster import hardware
from factsweep.pipeline.config import settings
from factsweep.pipeline.inputs import catalog, models

MODEL = ["model=smollm2-135m", "model.dtype=float32"]
CLOZES = (
    "The capital of France is",
    "Albert Einstein was born in the city of",
    "The headquarters of the company are located in",
    "The official language of the country is",
)


class Job(NamedTuple):
    """How much is compared, and how candidates are chosen."""

    clozes: int
    candidates: int
    search: Search = "given"
    n: int = 100


class Rate(NamedTuple):
    """How many candidates were compared, in what time; and a sum that all ways must agree on."""

    candidates: int
    seconds: float
    check: float


def main() -> None:
    """Measure turn by turn, then print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clozes", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=101)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--searched", type=int, default=600, help="candidates of a search")
    args = parser.parse_args()
    compare(
        Job(args.clozes, args.candidates),
        {
            "trie": through_trie,
            "one by one": one_by_one,
            "vLLM, by nodes": through_nodes,
            "vLLM, default": through_prompts,
            "vLLM, by rows": through_rows,
        },
        args.rounds,
    )
    for search in ("optimal", "exact"):
        job = Job(1, args.searched, search)
        compare(job, {"trie": through_trie, "vLLM, by nodes": through_nodes}, args.rounds)


def compare(job: Job, ways: dict[str, Callable[[Job], Rate | None]], rounds: int) -> None:
    """Print the time of each way that this machine has, and its ratio to the first."""
    print(f"\n{job.search}: {job.clozes} clozes, {job.candidates} candidates each")
    rates: dict[str, list[Rate]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            if (rate := in_fresh_process(way, job)) is None:
                print(f"{name:<16} vLLM's model runner V2 does not run here: no Triton", flush=True)
                continue
            rates[name].append(rate)
            print(
                f"{name:<16} {rate.candidates:>6,} candidates {rate.seconds:7.2f} s  sum of nats "
                f"{rate.check:.3f}  load of the machine {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    first = _per_s(next(iter(rates.values())))
    for name, turns in rates.items():
        if not turns:
            continue
        ratio = first / _per_s(turns)
        print(f"{name:<16} {_per_s(turns):8.1f} candidates/s   the trie is {ratio:6.2f} × as fast")


def _per_s(rates: Sequence[Rate]) -> float:
    return sum(rate.candidates for rate in rates) / sum(rate.seconds for rate in rates)


def through_trie(job: Job) -> Rate:
    """The engine transformers, as the pipeline asks it."""
    tokenizer = _tokenizer()
    return _compared(CandidatesLM(_model(), tokenizer), tokenizer, job)


def through_nodes(job: Job) -> Rate:
    """The engine vllm, as the pipeline asks it where vLLM has no rows."""
    engine = _vllm()
    engine.reads_rows = False
    return _compared(engine, _tokenizer(), job)


def _compared(engine: Any, tokenizer: Any, job: Job) -> Rate:
    list(engine.preferences(_requests(tokenizer, Job(1, 8))))  # the first pass is slower
    started = time.perf_counter()
    results = list(engine.preferences(_requests(tokenizer, job)))
    seconds = time.perf_counter() - started
    check = sum(
        e.logprob for preference in results for e in (preference.answer, *preference.distractors)
    )
    return Rate(job.clozes * job.candidates, seconds, check)


def one_by_one(job: Job) -> Rate:
    """transformers, a text at a time."""
    import torch

    tokenizer, model = _tokenizer(), _model().eval()

    def score(ids: Sequence[int], n: int) -> float:
        with torch.inference_mode():
            rows = model(torch.tensor([ids[:-1]]), use_cache=False).logits[0].float()
        logprobs = rows.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])
        return float(logprobs[n - 1 :].sum())

    return _summed(tokenizer, job, lambda texts: [score(*text) for text in texts])


def through_prompts(job: Job) -> Rate:
    """Log-probabilities of prompts by vLLM, as PRobELM's texts are scored."""
    engine = _vllm()

    def scores(texts: Sequence[tuple[list[int], int]]) -> list[float]:
        score_requests = [
            ScoreRequest(f"{number}", ids, "", (n, len(ids)))
            for number, (ids, n) in enumerate(texts)
        ]
        logprobs = {
            score.request_id: score.entity_logprob for score in engine.scores(score_requests)
        }
        return [logprobs[f"{number}"] or 0.0 for number in range(len(texts))]

    return _summed(_tokenizer(), job, scores)


def through_rows(job: Job) -> Rate | None:
    """The engine vllm, as the pipeline asks it; None where vLLM has no rows."""
    engine = _vllm()
    return _compared(engine, _tokenizer(), job) if engine.reads_rows else None


def _summed(
    tokenizer: Any, job: Job, scores: Callable[[Sequence[tuple[list[int], int]]], list[float]]
) -> Rate:
    """The plausibilities from the log-probabilities of whole texts and the end behind them."""
    eos, names = tokenizer.eos_token_id, _names(job.candidates)
    scores([([*tokenizer("a b c").input_ids, eos], 1)])
    started, check = time.perf_counter(), 0.0
    for cloze in CLOZES[: job.clozes]:
        n = len(tokenizer(cloze).input_ids)
        texts = tokenizer([f"{cloze} {name.label}" for name in names]).input_ids
        logprobs: dict[str, list[float]] = {}
        for name, score in zip(names, scores([([*ids, eos], n) for ids in texts]), strict=True):
            logprobs.setdefault(name.entity_id, []).append(score)
        check += sum(map(log_sum, logprobs.values()))
    return Rate(job.clozes * job.candidates, time.perf_counter() - started, check)


def _requests(tokenizer: Any, job: Job) -> Iterable[PreferRequest]:
    labels = Labels(tokenizer, _names(job.candidates))
    clozes = CLOZES[: job.clozes]
    ending = ending_tokens(tokenizer, "eos")
    for number, (token_ids, trie) in enumerate(labels.behind(clozes)):
        first, *alternatives = trie.nodes_of
        candidates = alternatives if job.search == "given" else ()
        n = job.candidates if job.search == "given" else job.n
        yield PreferRequest(f"{number}", token_ids, trie, ending, first, job.search, n, candidates)


def _names(n: int) -> list[Name]:
    """The labels of the first entities of the knowledge base that ships with the project."""
    base = catalog.read_facts(catalog.entry("distractors-mini")).knowledge_base
    assert base is not None
    rows = base.entities.head(n).select("entity_id", "labels").explode("labels")
    return [Name(*row) for row in rows.unique(maintain_order=True).iter_rows()]


def _weights() -> models.Weights:
    return models.resolve(settings.load(MODEL).model)


def _tokenizer() -> Any:
    return models.tokenizer(_weights())


def _model() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(models.location(_weights()), dtype=torch.float32)


def _vllm() -> Any:
    if folder := os.environ.get("FACTSWEEP_TRITON"):
        _interpret_triton(folder)
    os.environ.update(hardware.worker_variables(settings.load(MODEL)))
    from factsweep.operators.engines.protocol import Start
    from factsweep.operators.engines.vllm import VllmEngine

    folder = models.location(_weights())
    return VllmEngine(Start(folder, None, "float32", max_model_len=1024, ability="prefer"))


def _interpret_triton(folder: str) -> None:
    sys.path.insert(0, folder)
    os.environ |= {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    backends = importlib.import_module("triton.backends").backends
    # vLLM's CPU build looks for a backend of this name.
    backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True), compiler=None)


if __name__ == "__main__":
    main()
