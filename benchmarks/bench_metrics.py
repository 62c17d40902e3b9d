"""From answers to BELIEF's metrics at MyriadLAMA's full size: pipeline and literal formulas.

Makes a set of MyriadLAMA's size (bench_expand.py), made-up answers to each of its 6.49 M prompts (a
few dozen distinct ones a pair, the right one among them, skewed), and 100 samples of each of 10,000
prompts. Then measures, each in a process of its own:

    match      answers → lemmas, which are right, confidence: the stage `match` in one process
    … shared   the same in Ray tasks, one per core; without starting Ray, and with the same bytes
    aggregate  Acc@1, fluctuation (50,000 draws, in both ways), Consist, one-word ratio, coverage,
               Ovconf, ECE, Brier, AUROC, with intervals of 1,000 rounds: the stage `aggregate`
    analyses   the same, and the analyses that conf/metrics/ asks for
    formulas   the peer: spaCy on each answer, Consist over each two prompts, 50,000 draws of one
               prompt per pair and 50,000 of one template per relation, a bootstrap over pairs; on
               all prompts of a few pairs, its time without loading scaled up to all pairs. It has
               less to do: no samples and no intervals but those of Acc@1

    python benchmarks/bench_metrics.py [--scale 0.1]
"""

import argparse
import random
import shutil
import tempfile
import time
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import ray
from _fresh_process import in_fresh_process
from bench_expand import Cost, alone, make_rows, measured, peak_gib, show

from factsweep.operators.matching.normalise import Normaliser
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.remaining_prompts import finish
from factsweep.pipeline.runs.run_tasks import Tasks
from factsweep.pipeline.stages import facts
from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.stages.plan import Branch, build_plan
from factsweep.pipeline.storage.artifact import Artifact

if TYPE_CHECKING:
    from spacy.language import Language

N_DISTINCT, N_WORDS = 36, 40_000
TARGET_S, TARGET_GIB = 60.0, 4.0
N_PEER_PAIRS = 40


def main() -> None:
    """Make the answers, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pairs (1: all)")
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory(prefix="bench-metrics-") as folder:
        alone(make_rows, Path(folder) / "rows", scale)
        overrides = ["benchmark=myriadlama", f"benchmark.path={folder}/rows", "prompt=zero-shot"]
        overrides += ["decoding.canary_prompts=0", f"artifacts={folder}/artifacts"]
        core = settings.load([*overrides, "metrics.analyses=[]"])
        show("(answers made)", alone(publish, core))
        matched = alone(make_matched, core)
        show("match", matched)
        shared = in_fresh_process(share_matched, core)
        show("… shared", shared, "peak without its tasks")
        metrics = alone(make_metrics, core)
        seconds = matched.seconds + metrics.seconds
        peak = max(matched.peak_gib, metrics.peak_gib)
        holds = seconds < TARGET_S and peak < TARGET_GIB
        target = f"target at scale 1: {TARGET_S:.0f} s, {TARGET_GIB:.0f} GiB"
        show("aggregate", metrics, f"together {seconds:.1f} s; {target}: {_verdict(holds)}")
        show("analyses", alone(make_metrics, settings.load(overrides)))
        peer = in_fresh_process(read_formulas, core)
        n_pairs = facts.load(_branch(core).facts).pairs.height
        scaled = peer.seconds * n_pairs / N_PEER_PAIRS
        ratio, of_shared = (
            scaled / (match_usage.seconds + metrics.seconds) for match_usage in (matched, shared)
        )
        note = f"{N_PEER_PAIRS} pairs; scaled up {scaled:,.0f} s"
        show("formulas", peer, f"{note}, {ratio:,.0f} × ours, {of_shared:,.0f} × with … shared")


def _verdict(holds: bool) -> str:
    return "holds" if holds else "MISSED"


def _branch(run: Run) -> Branch:
    (branch,) = build_plan(run).branches
    return branch


def publish(run: Run) -> int:
    """Publish facts, prompts and made-up answers; returns the number of answers."""
    branch = _branch(run)
    branch.step(branch.facts).run()
    branch.step(branch.prompts).run()
    for artifact in (branch.admitted, *branch.list_outputs()):
        artifact.begin()
    label = pl.col("objects").list.first().struct.field("labels").list.first()
    labels = branch.facts.read("pairs", "all").select("pair_id", right=label)
    generator = np.random.default_rng(0)
    n = 0
    for shard in branch.prompts.shards("prompts"):
        rows = branch.prompts.read("prompts", shard).filter(pl.col("same_as").is_null())
        answers = _answered(rows, labels, generator).with_columns(
            n_tokens=pl.lit(2), logprob=pl.lit(None), finish_reason=pl.lit("stop")
        )
        branch.answers.write("generations", shard, answers)
        n += answers.height
    branch.admitted.finish(["errors"])
    for number, block in enumerate(branch.extra_outputs):
        _sample(branch, block, number, run, labels, generator)
    for artifact, question in branch.list_questions():
        if artifact == branch.repeated_answers:
            artifact.finish([artifact.stage, "errors"])  # nothing is measured of it here
        else:
            finish(branch, artifact, question)
    return n


def _sample(
    branch: Branch,
    block: Artifact,
    number: int,
    run: Run,
    labels: pl.DataFrame,
    generator: np.random.Generator,
) -> None:
    samples = run.decoding.samples
    for shard in branch.prompts.shards("ranked"):
        rows = branch.prompts.read("ranked", shard)
        rows = rows.filter(pl.col("calibration_rank") < samples.n_prompts)
        repeated_rows = pl.concat([rows] * samples.block_size).sort("prompt_id")
        texts = _answered(repeated_rows, labels, generator).group_by(
            "prompt_id", maintain_order=True
        )
        sampled_texts = texts.agg(texts="text").with_columns(block=pl.lit(number))
        block.write("samples", shard, sampled_texts)


def _answered(
    rows: pl.DataFrame, labels: pl.DataFrame, generator: np.random.Generator
) -> pl.DataFrame:
    """An answer for each row: the right label, or one of the pair's few dozen others; skewed."""
    chosen = np.minimum(generator.geometric(0.12, rows.height) - 1, N_DISTINCT)
    word = (pl.col("pair_id").hash(1) + pl.col("chosen") * 7919) % N_WORDS
    other = pl.format(" {} Place{}.", pl.lit("The"), word)
    return (
        rows.select("prompt_id", "pair_id", chosen=pl.Series(chosen, dtype=pl.UInt64))
        .join(labels, on="pair_id", maintain_order="left")
        .select(
            "prompt_id",
            text=pl.when(pl.col("chosen") == 0).then(" " + pl.col("right") + ".").otherwise(other),
        )
    )


def make_matched(run: Run) -> int:
    """The stage `match`; returns the number of answers."""
    branch = _branch(run)
    branch.step(branch.matched).run()
    return sum(branch.matched.rows("answers").values())


def make_metrics(run: Run) -> int:
    """The stage `aggregate`; returns the number of rows of the metrics table."""
    branch = _branch(run)
    branch.step(branch.metrics).run()
    return sum(branch.metrics.rows("metrics").values())


def share_matched(run: Run) -> Cost:
    """The stage `match` once more, on all cores; its cost from when Ray has started.

    Raises:
        AssertionError: something of it is another than in one process.
    """
    branch = _branch(run)
    matched, step = branch.matched, branch.step(branch.matched)
    tables_before = matched.manifest().tables
    shutil.rmtree(matched.store.where(matched.folder))
    matched.forget()
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    began, busy = time.perf_counter(), time.process_time()
    tasks = Tasks(step.check, fewest=0)
    step.run(None, tasks)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - busy
    ray.shutdown()
    assert matched.manifest().tables == tables_before
    rows = sum(matched.rows("answers").values())
    return Cost(rows, seconds, cpu_s + tasks.core_seconds, peak_gib())


def read_formulas(run: Run) -> Cost:
    """The peer, on all prompts of the first pairs; its cost once all is loaded."""
    branch = _branch(run)
    rows, labels = _first_pairs(branch)
    nlp = Normaliser()._nlp
    return measured(_formulas, run, nlp, rows, labels)


def _first_pairs(branch: Branch) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """All prompts of the first relation's first pairs with their answers, and the right labels."""
    prompts, answers = branch.prompts, branch.answers
    first = [
        shard
        for shard in prompts.shards("prompts")
        if relation_of(shard) == prompts.shards("ranked")[0]
    ]
    first_prompts = pl.concat(prompts.read("prompts", shard) for shard in first)
    texts = pl.concat(answers.read("generations", shard) for shard in first)
    pairs = branch.facts.read("pairs", "all")
    chosen = first_prompts["pair_id"].unique(maintain_order=True).head(N_PEER_PAIRS)
    rows = first_prompts.filter(pl.col("pair_id").is_in(chosen.implode())).select(
        "pair_id", "template_id", prompt_id=pl.coalesce("same_as", "prompt_id")
    )
    labels = {
        pair["pair_id"]: [label for object_ in pair["objects"] for label in object_["labels"]]
        for pair in pairs.filter(pl.col("pair_id").is_in(chosen.implode())).iter_rows(named=True)
    }
    return rows.join(texts, on="prompt_id"), labels


def _formulas(run: Run, nlp: "Language", rows: pl.DataFrame, labels: dict[str, list[str]]) -> int:
    """Compute the formulas literally; returns the number of answers."""
    lemmas_of = {pair: [_lemmas(nlp, label) for label in labels[pair]] for pair in labels}
    lemmas: dict[str, list[list[str]]] = defaultdict(list)
    right: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for pair, template, text in rows.select("pair_id", "template_id", "text").iter_rows():
        answer = _lemmas(nlp, text)
        lemmas[pair].append(answer)
        right[pair][template].append(any(_contains(answer, lemmas) for lemmas in lemmas_of[pair]))
    for answers in lemmas.values():
        sum(_contains(a, b) or _contains(b, a) for a, b in combinations(answers, 2)) / max(
            1, len(answers) * (len(answers) - 1) / 2
        )
    prompts = [
        [value for some in by_template.values() for value in some] for by_template in right.values()
    ]
    templates = rows["template_id"].unique().to_list()
    for _ in range(run.metrics.n_draws):
        sum(random.choice(values) for values in prompts) / len(prompts)
        template = random.choice(templates)
        sum(random.choice(by_template[template]) for by_template in right.values()) / len(right)
    means = [sum(values) / len(values) for values in prompts]
    for _ in range(run.metrics.n_rounds):
        sum(random.choices(means, k=len(means))) / len(means)
    return rows.height


def _lemmas(nlp: "Language", text: str) -> list[str]:
    return [token.lemma_ for token in nlp(text.lower()) if not (token.is_punct or token.is_space)]


def _contains(a: list[str], b: list[str]) -> bool:
    return bool(b) and any(a[i : i + len(b)] == b for i in range(len(a) - len(b) + 1))


if __name__ == "__main__":
    main()
