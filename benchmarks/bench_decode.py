"""Decoding smollm2-135m: the pipeline and its alternatives, in one run on one machine.

    pipeline         `factsweep run`, 4-template, demonstrations shared by a template's prompts
    vLLM, bare       LLM.generate over the same token ids with the same engine options
    pipeline, fresh  the pipeline with `prompt.scope=prompt`: demonstrations drawn for each prompt
    lm-eval          lm-evaluation-harness on its vLLM backend, same texts, same engine options
    HF, batch 32     transformers' generate, padded on the left, newline as an end of sequence
    HF, batch 1      the same, one prompt at a time

The prompts are myriadlama-mini's templates for continents with countries and cities: one shard, so
that, as in a real sweep, the batch seldom runs dry at a shard's end. The answers are not looked at.

All answer greedily with at most 10 tokens, up to the end of the line. A rate is prompts a second
without the loading of the model. One engine is alive at a time, each in a process of its own, and
the pipeline and bare vLLM take turns, since a machine is not equally fast all the time.

lm-evaluation-harness needs packages that the project does not want; it runs in an environment that
only borrows the project's (benchmarks/README.md), and without one its line says so.

With `--host-bound` the model is one of two random layers of 64, with the tokenizer of smollm2-135m:
it stands for a GPU so fast that only the host counts. The pipeline, which tokenises, is then held
against bare vLLM with token ids, in its default environment and in the one that the pipeline gives
its engines (on a CPU: memory that is kept), and against bare vLLM that is handed texts: zero-shot,
4-template, and 25 samples of each prompt. On all sides the model computes on --cores cores: with
one, the host keeps one of two, as it does with a GPU.

    python benchmarks/bench_decode.py [--rounds 2] [--lm-eval /tmp/lm-eval/bin/python]
    python benchmarks/bench_decode.py --host-bound [--rounds 3] [--cores 1]
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import polars as pl
from _fresh_process import in_fresh_process

from factsweep.operators.datasets.myriadlama import rows_from_facts
from factsweep.operators.prompts.tokens import encode
from factsweep.pipeline.cluster import hardware
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.machine import processor
from factsweep.pipeline.runs import run
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import build_plan, resolve_run

GIVEN = (
    "model=smollm2-135m",
    "benchmark=myriadlama-mini",
    "prompt=4-template",
    "decoding=greedy",
    "decoding.canary_prompts=0",
    "metrics.n_draws=100",
    "metrics.n_rounds=10",
)
FRESH = ("prompt.scope=prompt", "benchmark.pairs_per_relation=40")  # slow: fewer are enough
RELATION, OF_PLACES, N_PAIRS = "P30", ("P30", "P36", "P37", "P17"), 120
N_SAMPLED = f"decoding.samples.n_prompts={N_PAIRS}"
N_BATCHED, N_SINGLE = 256, 96
FLOAT32 = ("model.dtype=float32",)
HOST_BOUND = {
    "zero-shot": ("prompt=zero-shot",),
    "4-template": ("prompt=4-template",),
    "25 samples": ("decoding=default", "decoding.samples.n_answers=25", N_SAMPLED),
}
AT_LEAST = {"vLLM, bare": 0.95, "pipeline, fresh": 3.0, "vLLM, ids": 0.97, "vLLM, texts": 1.2}
TASK = """\
task: facts
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/prompts.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{target}}"
target_delimiter: ""
generation_kwargs: {until: ["\\n"], max_gen_toks: 10, do_sample: false, temperature: 0.0}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


class Rate(NamedTuple):
    """How many prompts were answered, and in what time."""

    prompts: int
    seconds: float


def main() -> None:
    """Measure each line in turn, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="turns of the pipeline and bare vLLM")
    parser.add_argument("--lm-eval", default="/tmp/lm-eval/bin/python", help="a Python that has it")
    parser.add_argument("--host-bound", action="store_true", help="a model that costs nothing")
    parser.add_argument("--cores", type=int, default=1, help="that such a model computes on")
    args = parser.parse_args()
    rates: dict[str, list[Rate]] = {}

    def measure(name: str, work: Callable[..., Rate | None], *arguments: Any) -> None:
        rate = in_fresh_process(work, *arguments)
        if rate is not None:
            rates.setdefault(name, []).append(rate)
            load = f"load of the machine {os.getloadavg()[0]:.1f}"
            print(
                f"{name:<16} {rate.prompts:>5,} prompts {rate.seconds:6.1f} s  {load}", flush=True
            )

    with tempfile.TemporaryDirectory(prefix="bench-decode-") as folder:
        if args.host_bound:
            tiny = (f"model={save_tiny(Path(folder) / 'tiny')}", "model.replicas.max=1")
            is_cpu = processor.device("auto") == "cpu"
            on = (f"cluster.num_cpus={args.cores}", *FLOAT32) if is_cpu else ()
            for name, overrides in HOST_BOUND.items():
                rates.clear()
                print(f"\n{name}", flush=True)
                for turn in range(args.rounds):
                    job = _job(f"{folder}/{name}/{turn}", *tiny, *on, *overrides)
                    measure("pipeline", through_pipeline, job)
                    measure("vLLM, ids", through_vllm, job)
                    measure("vLLM, texts", through_vllm, job, False)
                    with patch.dict(os.environ, hardware.worker_variables(job)):
                        measure("vLLM, ids, env", through_vllm, job)
                _print_table(rates, against="vLLM, ids")
            return
        jobs = [_job(f"{folder}/{turn}") for turn in range(args.rounds)]
        for job in jobs:
            measure("pipeline", through_pipeline, job)
            measure("vLLM, bare", through_vllm, job)
        measure("pipeline, fresh", through_pipeline, _job(f"{folder}/fresh", *FRESH))
        measure("lm-eval", through_lm_eval, jobs[0], Path(folder), args.lm_eval)
        measure("HF, batch 32", through_hf, jobs[0], N_BATCHED, 32)
        measure("HF, batch 1", through_hf, jobs[0], N_SINGLE, 1)
    _print_table(rates)


def _job(folder: str, *overrides: str) -> Run:
    rows = Path(folder) / "rows.parquet"
    rows.parent.mkdir(parents=True)
    _rows().write_parquet(rows)
    places = (f"artifacts={folder}/artifacts", f"results={folder}/results", "run_name=bench")
    return resolve_run(settings.load([*GIVEN, f"benchmark.path={rows}", *places, *overrides]))


def save_tiny(folder: Path) -> Path:
    """A random model of 2 layers of 64, with the tokenizer of smollm2-135m."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = models.tokenizer(models.resolve(resolve_run(settings.load(list(GIVEN))).model))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    length = {"max_position_embeddings": 2048}
    config = LlamaConfig(vocab_size=len(tokenizer), **sizes, **heads, **length)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    return folder


def _rows() -> pl.DataFrame:
    """Rows in MyriadLAMA's format: one relation, with the places that other relations are about."""
    rows = rows_from_facts(catalog.read_facts(catalog.entry("myriadlama-mini")))
    of_templates = ("rel_uri", "template", "is_manual")
    templates = rows.filter(rel_uri=RELATION).select(of_templates).unique(maintain_order=True)
    places = rows.filter(pl.col("rel_uri").is_in(OF_PLACES))
    pairs = places.unique("sub_uri", maintain_order=True).drop(of_templates).head(N_PAIRS)
    return templates.join(pairs, how="cross")


def _print_table(rates: dict[str, list[Rate]], against: str = "vLLM, bare") -> None:
    ours = _per_s(rates["pipeline"])
    print(f"\n{'':<16} {'prompts/s':>9} {'the pipeline is':>15}")
    for name, turns_of_line in rates.items():
        ratio = ours / _per_s(turns_of_line)
        note = ""
        if name in AT_LEAST:
            holds = "holds" if ratio >= AT_LEAST[name] else "MISSED"
            note = f"  target: at least {AT_LEAST[name]:.2f}: {holds}"
        print(f"{name:<16} {_per_s(turns_of_line):9.1f} {ratio:8.2f} × as fast{note}")
    turns = zip(rates["pipeline"], rates[against], strict=True)
    ratios = ", ".join(f"{_per_s([a]) / _per_s([b]):.2f}" for a, b in turns)
    print(f"pipeline / {against}, turn by turn: {ratios}")


def _per_s(rates: Sequence[Rate]) -> float:
    return sum(rate.prompts for rate in rates) / sum(rate.seconds for rate in rates)


def through_pipeline(job: Run) -> Rate:
    """The run from facts to tables; the time is that of decoding, from the shards' footers.

    Of samples, where there are any, else of greedy answers.
    """
    run.run(job)
    (branch,) = build_plan(job).branches
    counts = [
        count
        for artifact in (branch.extra_outputs or (branch.answers,))
        for count in artifact.counts(artifact.stage).values()
    ]
    return Rate(
        prompts=sum(int(count["prompts"]) for count in counts),
        seconds=sum(float(count["seconds"]) for count in counts),
    )


def through_vllm(job: Run, as_ids: bool = True) -> Rate:
    """All prompts of the run in their order, in one call: as token ids, or as texts."""
    os.environ.update(hardware.worker_variables(job))
    from vllm import LLM, SamplingParams

    llm = LLM(**_engine_options(job))
    n, texts = job.decoding.samples.n_prompts, list_texts(job)
    sampling_options = {"n": job.decoding.samples.block_size, "seed": 0, "temperature": 1.0}
    texts = texts[:: len(texts) // n][:n] if n else texts
    ids = encode(models.tokenizer(build_plan(job).weights), texts)
    prompts = [{"prompt_token_ids": token_ids} for token_ids in ids] if as_ids else texts
    sampling = SamplingParams(
        **(sampling_options if n else {"temperature": 0.0}),
        max_tokens=job.decoding.max_tokens,
        stop=list(job.decoding.stop),
    )
    started = time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    return Rate(len(ids), time.perf_counter() - started)


def _engine_options(job: Run) -> dict[str, Any]:
    """The pipeline's engine arguments, as arguments of vLLM's LLM."""
    options: dict[str, Any] = {
        "model": models.location(build_plan(job).weights),
        "dtype": job.model.dtype,
        "max_model_len": job.model.max_model_len,
        "seed": 0,
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "gpu_memory_utilization": job.model.gpu_memory_utilization,
    }
    if job.device == "cpu":
        del options["gpu_memory_utilization"]
        options |= {"enforce_eager": True, "block_size": 32, "enable_chunked_prefill": False}
    return options


def list_texts(job: Run) -> list[str]:
    """The texts that the run decoded, each once, in its order."""
    prompts = build_plan(job).branches[0].prompts
    shards = [with_text(prompts, "prompts", shard) for shard in prompts.shards("prompts")]
    return [
        text
        for rows in shards
        for text, same_as in rows.select("text", "same_as").iter_rows()
        if same_as is None
    ]


def through_lm_eval(job: Run, folder: Path, python: str) -> Rate | None:
    """The prompts of the run as a task of lm-evaluation-harness; null where it is not there."""
    probe = subprocess.run([python, "-c", "import lm_eval"], capture_output=True, check=False)
    if probe.returncode:
        print("lm-eval          not installed: see benchmarks/README.md", flush=True)
        return None
    texts = list_texts(job)
    lines = [json.dumps({"prompt": text, "target": ""}) for text in texts]
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    (folder / "facts.yaml").write_text(TASK.replace("FOLDER", str(folder)))
    options = _engine_options(job)
    options["pretrained"] = options.pop("model")
    (folder / "options.json").write_text(json.dumps(options))
    variables = {**os.environ, **hardware.worker_variables(job), "HF_HOME": str(folder / "hf")}
    script = Path(__file__).with_name("_lm_eval.py")
    process = subprocess.run(
        [python, str(script), str(folder)],
        env=variables,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return Rate(len(texts), float(process.stdout.splitlines()[-1]))


def through_hf(job: Run, n_prompts: int, batch_size: int) -> Rate:
    """Some of the run's prompts, evenly spread, in transformers' generate."""
    import torch
    from transformers import AutoModelForCausalLM

    weights = build_plan(job).weights
    tokenizer = models.tokenizer(weights)
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(
        models.location(weights), dtype=getattr(torch, job.model.dtype)
    )
    (newline,) = tokenizer("\n", add_special_tokens=False).input_ids
    texts = list_texts(job)
    texts = texts[:: max(1, len(texts) // n_prompts)][:n_prompts]
    started = time.perf_counter()
    for first in range(0, len(texts), batch_size):
        batch = tokenizer(texts[first : first + batch_size], padding=True, return_tensors="pt")
        model.generate(
            **batch,
            do_sample=False,
            max_new_tokens=job.decoding.max_tokens,
            eos_token_id=[tokenizer.eos_token_id, newline],
            pad_token_id=tokenizer.pad_token_id,
        )
    return Rate(len(texts), time.perf_counter() - started)


if __name__ == "__main__":
    main()
