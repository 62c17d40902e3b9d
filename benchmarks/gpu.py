"""Measures decoding on one GPU in at most ten minutes, on a machine without a network.

    a  the pipeline and bare vLLM with the same token ids in the same engine, in turns
    c  stopping by stop strings, and by token ids without detokenising
    d  log-probabilities of the answers on and off
    f  an engine with the sizes of an 8B model and made-up weights: prompts/s, share of the cache
    e  the same in FP8
    b  one, two and four engines on the GPU, with as many prompts in all
    g  a run whose driver is killed, and the run that resumes it

The model is smollm2-135m, the prompts are those of myriadlama-mini, 4-template. Each part prints a
figure when it has it, as a line to read and as a line of JSON, so that a cut loses nothing that was
measured. Parts that share an engine share a process; a part that fails, or takes longer than its
time, ends alone, and the exit code is 1. With `--small` a tiny random model stands in, on a CPU,
where the figures mean nothing.

    python benchmarks/gpu.py [--parts acdfebg] [--minutes 9.5]
    python benchmarks/gpu.py --small

docs/first-gpu-hour.md says what such a machine needs, and how to carry it there.
"""

import argparse
import json
import multiprocessing
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from itertools import groupby
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from bench_decode import list_texts, save_tiny
from bench_idle import behind

from factsweep.operators.engines.fake import WISH
from factsweep.operators.engines.protocol import Request, Sampling, Start
from factsweep.operators.prompts.tokens import encode
from factsweep.pipeline.cluster import hardware
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import engine as engines
from factsweep.pipeline.decoding.engine import TimedEngine
from factsweep.pipeline.decoding.remaining_prompts import begin, list_work
from factsweep.pipeline.inputs import models
from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages.plan import build_plan, resolve_run

SETTING = ("benchmark=myriadlama-mini", "prompt=4-template", "decoding=greedy")
SETTING += ("decoding.canary_prompts=0", "metrics.n_draws=100", "metrics.n_rounds=10")
SMALL = ("benchmark.relations=[P36]", "benchmark.pairs_per_relation=6", "model.dtype=float32")
SMALL += ("cluster.device=cpu", "cluster.num_cpus=1", "cluster.cpu_kvcache_gib=1")
SMALL += ("model.max_model_len=1024",)
ROUNDS, ON_ONE_GPU = 3, (1, 2, 4)
SAMPLING = Sampling(max_tokens=10, stop=("\n",))
CACHE_BYTES = 8 * 2**30  # of each engine that shares the GPU: so they need not load in turn
SIZES_8B = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
SIZES_8B |= {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256}
SLOW_FACTOR = 5  # a CPU that others use


class SkippedError(Exception):
    """Why a part is not measured on this machine."""


class Part(NamedTuple):
    """A part, its seconds at most (with the start of its engine), and what measures it."""

    limit_s: float
    process: str  # parts of one process share an engine
    measure: "Callable[[Bench], None]"


def report(part: str, figure: str, value: float, unit: str, **details: Any) -> None:
    """Print a figure, to read and as JSON."""
    notes = "".join(f", {name.replace('_', ' ')} {item}" for name, item in details.items())
    print(f"({part}) {figure}: {value:,.4g} {unit}{notes}")
    row = {"part": part, "figure": figure, "value": value, "unit": unit}
    print(json.dumps(row | details), flush=True)


class Bench:
    """What the parts of a process share: the run, its prompts, and one engine."""

    def __init__(self, folder: Path, *, small: bool) -> None:
        self.folder, self.small = folder, small
        self.rounds = 1 if small else ROUNDS

    def overrides(self, *changes: str) -> list[str]:
        """The overrides of the run that all parts are about, with changes."""
        model = self.folder / "tiny" if self.small else "smollm2-135m"
        places = (f"artifacts={self.folder}/artifacts", f"results={self.folder}/results")
        rest = (*places, "run_name=gpu", *(SMALL if self.small else ()))
        return [f"model={model}", *SETTING, *rest, *changes]

    def prepare_run(self, *changes: str) -> Run:
        """The run, with changes."""
        return resolve_run(settings.load(self.overrides(*changes)))

    @cached_property
    def run(self) -> Run:
        """The run without changes."""
        return self.prepare_run()

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of its model."""
        return models.tokenizer(build_plan(self.run).weights)

    @cached_property
    def prompts(self) -> list[list[int]]:
        """Its prompts as token ids, each once, in its order."""
        prepare_shards(self.run)
        return encode(self.tokenizer, list_texts(self.run))

    @cached_property
    def engine(self) -> Any:
        """Its engine, loaded."""
        return load_engine(self.run)

    def sampled(self, **changes: Any) -> Any:
        """Parameters of vLLM for its prompts: greedy, to the end of the line."""
        from vllm import SamplingParams

        return SamplingParams(**{"temperature": 0.0, "max_tokens": 10, "stop": ["\n"], **changes})

    def answer_bare(self, sampling: Any) -> tuple[float, list[Any]]:
        """Prompts per second of `LLM.generate` on all prompts, and its outputs."""
        prompts = [{"prompt_token_ids": ids} for ids in self.prompts]
        llm = self.engine._llm
        llm.reset_prefix_cache()
        started = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        return len(prompts) / (time.perf_counter() - started), outputs


def set_environment(run: Run) -> None:
    """Set the environment that the pipeline gives an engine; of its log only errors are shown."""
    os.environ.update(hardware.worker_variables(run) | {"VLLM_LOGGING_LEVEL": "ERROR"})


def load_engine(run: Run) -> Any:
    """The engine of a run, in this process, in the environment that the pipeline gives it."""
    set_environment(run)
    return engines.load(run, build_plan(run).weights)


def prepare_shards(run: Run) -> list[Any]:
    """Prepare the shards of a run for its engine, and begin its answers."""
    (branch,) = (plan := build_plan(run)).branches
    for step in (*branch.sources(), branch.step(branch.prompts), branch.step(branch.admitted)):
        if not step.artifact.is_complete():
            step.run()
    begin(branch, branch.answers)
    return list_work(plan)


def check_answers(run: Run, n: int) -> None:
    """Refuse a run that has not published one answer for each of n prompts."""
    (branch,) = build_plan(run).branches
    counts = branch.answers.counts("generations").values()
    n_answered = sum(int(count["answers"]) for count in counts)
    if n_answered != n:
        raise AssertionError(f"{n_answered} answers are published, of {n} prompts")


def measure_pipeline(bench: Bench) -> None:
    """(a) Shards through reading, answering and publishing; then the same ids bare."""
    bench.answer_bare(bench.sampled())  # the first pass of an engine is slower
    ratios = []
    for turn in range(bench.rounds):
        run = bench.prepare_run(f"artifacts={bench.folder}/turn-{turn}")
        shards, n = prepare_shards(run), len(bench.prompts)
        bench.engine._llm.reset_prefix_cache()
        started = time.perf_counter()
        behind(shards, cache(lambda: TimedEngine(bench.engine)), bench.tokenizer)
        rate = n / (time.perf_counter() - started)
        check_answers(run, n)
        bare, _ = bench.answer_bare(bench.sampled())
        ratios.append(rate / bare)
        report("a", "pipeline", rate, "prompts/s", round=turn, prompts=n)
        report("a", "bare vLLM", bare, "prompts/s", round=turn, prompts=n)
    report("a", "pipeline / bare vLLM", statistics.median(ratios), "×", rounds=len(ratios))


def measure_stops(bench: Bench) -> None:
    """(c) Tokens with a line's end in them stop, and one decoding makes the texts."""
    tokens = bench.tokenizer.batch_decode([[i] for i in range(len(bench.tokenizer))])
    ends = [i for i, text in enumerate(tokens) if "\n" in text]
    plain = bench.sampled()
    by_ids = bench.sampled(stop=None, stop_token_ids=ends, detokenize=False)
    for turn in range(bench.rounds):
        rate, expected = bench.answer_bare(plain)
        faster, outputs = bench.answer_bare(by_ids)
        ids = [output.outputs[0].token_ids for output in outputs]
        texts = bench.tokenizer.batch_decode(ids, skip_special_tokens=True)
        pairs = zip(texts, expected, strict=True)
        n_same = sum(text.partition("\n")[0] == old.outputs[0].text for text, old in pairs)
        report("c", "stop strings", rate, "prompts/s", round=turn)
        report("c", "stop by token ids", faster, "prompts/s", round=turn, same_answers=n_same)


def measure_logprobs(bench: Bench) -> None:
    """(d) The log-probability of each answer's tokens, as the canary asks for them."""
    for turn in range(bench.rounds):
        for name, logprobs in (("off", None), ("on", 0)):
            rate, _ = bench.answer_bare(bench.sampled(logprobs=logprobs))
            report("d", f"logprobs {name}", rate, "prompts/s", round=turn)


def measure_large(bench: Bench, *, part: str, name: str, **arguments: str) -> None:
    """(f, e) Start an engine with made-up weights of an 8B model, and ask it some prompts."""
    from factsweep.operators.engines.vllm import VllmEngine

    if arguments and bench.run.device == "cpu":
        raise SkippedError("vLLM computes in FP8 on GPUs alone")
    folder = save_large(bench)
    set_environment(bench.run)
    started = time.perf_counter()
    engine = VllmEngine(
        Start(
            str(folder),
            None,
            "float32" if bench.small else "bfloat16",
            max_model_len=1024,
            device=bench.run.device,
            arguments={"load_format": "dummy", **arguments},
        )
    )
    report(part, f"{name}, start", time.perf_counter() - started, "s")
    for turn in range(2):  # the second has all prefixes in the cache
        rate, answers = ask(engine, bench.prompts[:4096])
        n_tokens = sum(answer.n_prompt_tokens for answer in answers)
        cached = sum(answer.n_cached_tokens for answer in answers) / n_tokens
        report(part, name, rate, "prompts/s", round=turn, cached=round(cached, 3))


def save_large(bench: Bench) -> Path:
    """A folder with the configuration of an 8B model, and no weights."""
    from transformers import LlamaConfig

    if bench.small:
        return bench.folder / "tiny"
    folder = bench.folder / "8b"
    bench.tokenizer.save_pretrained(folder)
    LlamaConfig(architectures=["LlamaForCausalLM"], **SIZES_8B).save_pretrained(folder)
    return folder


def ask(engine: Any, prompts: Sequence[list[int]]) -> tuple[float, list[Any]]:
    """Prompts per second of an engine, as the pipeline asks it, and its answers."""
    requests = (Request(f"{i}", ids, SAMPLING) for i, ids in enumerate(prompts))
    started = time.perf_counter()
    answers = list(engine.answers(requests))
    return len(answers) / (time.perf_counter() - started), answers


def measure_shared(bench: Bench) -> None:
    """(b) So many of the engines on the GPU answer all prompts, each a run of them."""
    counts = ON_ONE_GPU[:2] if bench.small else ON_ONE_GPU
    set_environment(bench.run)
    context, prompts = multiprocessing.get_context("spawn"), bench.prompts
    pipes = [context.Pipe() for _ in range(counts[-1])]
    for _, far in pipes:
        context.Process(
            target=serve_engine, args=(bench.folder, bench.small, far), daemon=True
        ).start()
    started = time.perf_counter()
    for near, _ in pipes:
        near.recv()
    report("b", f"{len(pipes)} engines, start", time.perf_counter() - started, "s")
    for n in counts:
        bounds = [len(prompts) * i // n for i in range(n + 1)]
        started = time.perf_counter()
        for (near, _), low, high in zip(pipes[:n], bounds[:-1], bounds[1:], strict=True):
            near.send(prompts[low:high])
        n_answered = sum(near.recv() for near, _ in pipes[:n])
        rate = n_answered / (time.perf_counter() - started)
        report("b", f"{n} engines together", rate, "prompts/s", prompts=n_answered)
    for near, _ in pipes:
        near.send([])


def serve_engine(folder: Path, small: bool, pipe: Connection) -> None:
    """Load an engine with a part of the memory, and answer lists of prompts."""
    memory = (f"model.engine.kv_cache_memory_bytes={CACHE_BYTES}",)
    memory += ("model.gpu_memory_utilization=0.2",)
    engine = load_engine(Bench(folder, small=small).prepare_run(*(() if small else memory)))
    ask(engine, [[1, 2, 3]])
    pipe.send("ready")
    while prompts := pipe.recv():
        engine._llm.reset_prefix_cache()
        _, answers = ask(engine, prompts)
        pipe.send(len(answers))


def measure_resume(bench: Bench) -> None:
    """(g) Kill the driver of a run when answers are published, and run it again."""
    rest = (f"artifacts={bench.folder}/killed", "run_name=killed", "cluster.rows_per_chunk=64")
    rest += ("decoding.engine=fake",) if bench.small else ("model.engine.enforce_eager=true",)
    overrides = bench.overrides(*rest)
    command = [sys.executable, "-m", "factsweep.pipeline.cli", "run", *overrides]
    slow = {WISH: '{"seconds_per_answer": 0.01}'} if bench.small else {}
    started = time.perf_counter()
    driver = subprocess.Popen(command, env=os.environ | slow, stdout=subprocess.DEVNULL)
    while not (chunks := list(bench.folder.glob("killed/*/*/chunks/*/*/*.parquet"))):
        if driver.poll() is not None:
            raise AssertionError(f"the run ended with {driver.returncode} before it was killed")
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    report("g", "killed after", time.perf_counter() - started, "s", chunks=len(chunks))
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    report("g", "resumed and ended after", time.perf_counter() - started, "s")
    check_answers(resolve_run(settings.load(overrides)), len(bench.prompts))


PARTS = {
    "a": Part(170, "small", measure_pipeline),
    "c": Part(60, "small", measure_stops),
    "d": Part(60, "small", measure_logprobs),
    "f": Part(130, "8B", partial(measure_large, part="f", name="8B in bfloat16")),
    "e": Part(110, "FP8", partial(measure_large, part="e", name="8B in FP8", quantization="fp8")),
    "b": Part(150, "shared", measure_shared),
    "g": Part(150, "run", measure_resume),
}


def measure_parts(letters: str, folder: Path, *, small: bool) -> None:
    """Measure parts one after the other in this process; each says how it ended."""
    bench = Bench(folder, small=small)
    for letter in letters:
        state, started = "done", time.perf_counter()
        print(json.dumps({"part": letter, "state": "begun"}), flush=True)
        try:
            PARTS[letter].measure(bench)
        except SkippedError as error:
            state = f"skipped: {error}"
        except Exception as error:
            traceback.print_exc()
            state = f"failed: {type(error).__name__}: {error}"
        print(f"({letter}) {state} after {time.perf_counter() - started:.1f} s")
        print(json.dumps({"part": letter, "state": state}), flush=True)
    os._exit(0)  # an engine's threads may outlive it


def watch_parts(
    letters: str, command: Sequence[str], deadline: float, factor: int
) -> dict[str, str]:
    """Have a process measure parts, show its lines, and end it when a part takes too long.

    Returns the state of each part that it has begun.
    """
    process = subprocess.Popen(
        [*command, "--inside", letters], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    lines = queue.Queue[str | None]()
    threading.Thread(target=read_lines, args=(process, lines), daemon=True).start()
    states: dict[str, str] = {}
    current, ends_at = letters[0], time.monotonic() + factor * PARTS[letters[0]].limit_s
    try:
        while True:
            line = lines.get(timeout=max(0.0, min(ends_at, deadline) - time.monotonic()))
            if line is None:
                break
            print(line, end="", flush=True)
            if line.startswith('{"part"') and "state" in (row := json.loads(line)):
                current = row["part"]
                states[current] = row["state"]
                ends_at = time.monotonic() + factor * PARTS[current].limit_s
        if states.get(current, "begun") == "begun":
            states[current] = f"failed: its process ended with code {process.wait()}"
    except queue.Empty:
        states[current] = "failed: it was ended, since its time was over"
    finally:
        end_group(process)
    return states


def read_lines(process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
    """Put each line of a process's output into a queue, then None."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


def end_group(process: "subprocess.Popen[str]") -> None:
    """End a process with all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    """Measure part by part; returns 1 if one of them failed or was not begun."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="".join(PARTS), help="which, in their order")
    parser.add_argument("--minutes", type=float, default=9.5, help="of all parts")
    parser.add_argument("--small", action="store_true", help="on a CPU, with a tiny model")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.parts) - PARTS.keys():
        parser.error(f"--parts={args.parts}: {', '.join(unknown)} is none of {', '.join(PARTS)}")
    if args.inside is not None:
        measure_parts(args.inside, args.folder, small=args.small)
    if not args.small and processor.device("auto") == "cpu":
        parser.error("there is no GPU here; --small runs every part on a CPU")
    return measure_all(args.parts, args.minutes, small=args.small)


def measure_all(letters: str, minutes: float, *, small: bool) -> int:
    """Measure parts, each group in a process of its own; returns the exit code."""
    deadline, states = time.monotonic() + 60 * minutes, dict[str, str]()
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
        if small:
            os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_WAIT_POLICY": "passive"}
            save_tiny(Path(folder) / "tiny")
        command = [sys.executable, __file__, *(["--small"] * small), "--folder", folder]
        for _, shared in groupby(letters, lambda letter: PARTS[letter].process):
            parts = "".join(shared)
            while parts and time.monotonic() < deadline:
                states |= watch_parts(parts, command, deadline, SLOW_FACTOR if small else 1)
                parts = "".join(letter for letter in parts if letter not in states)
    for letter in letters:
        print(f"({letter}) {states.get(letter, 'not begun: no time was left')}")
    is_good = [re.match("done|skipped", states.get(letter, "")) is not None for letter in letters]
    return 0 if all(is_good) else 1


if __name__ == "__main__":
    sys.exit(main())
