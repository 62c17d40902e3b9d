"""From answers to BELIEF's metrics at MyriadLAMA's full size: the pipeline beside the formulas.

Makes a set of MyriadLAMA's size (bench_expand.py), made-up answers to each of its 6.49 M prompts (a
few dozen distinct ones a pair, the right one among them, skewed), and 100 samples of each of 10,000
prompts. Then measures, each in a process of its own:

    match      answers → lemmas, which are right, confidence: the stage `match`
    aggregate  Acc@1, fluctuation (50,000 draws, in both ways), Consist, one-word ratio, coverage,
               Ovconf, ECE, Brier, AUROC, with intervals of 1,000 rounds: the stage `aggregate`
    analyses   the same, and the analyses that conf/metrics/ asks for
    formulas   the peer: spaCy on each answer, Consist over each two prompts, draws of one prompt
               a pair, a bootstrap over pairs; on a slice, its time scaled up to the whole

    python benchmarks/bench_metrics.py [--scale 0.1]
"""

import argparse
import random
import tempfile
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
from bench_expand import alone, make_rows, show

from operators.matching.normalise import Normaliser
from pipeline.config import settings
from pipeline.config.settings import Run
from pipeline.execution.plan import Branch, planned
from pipeline.execution.work import finish
from pipeline.stages import facts
from pipeline.storage.artifact import Artifact

N_DISTINCT, N_WORDS = 36, 40_000
TARGET_S, TARGET_GIB = 60.0, 4.0
N_PEER_PAIRS = 60


def main() -> None:
    """Make the answers, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pairs (1: all)")
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory(prefix="bench-metrics-") as folder:
        alone(make_rows, Path(folder) / "rows", scale)
        given = ["benchmark=myriadlama", f"benchmark.path={folder}/rows", "prompt=zero-shot"]
        given += ["decoding.canary_prompts=0", f"artifacts={folder}/artifacts"]
        core = settings.load([*given, "metrics.analyses=[]"])
        show("(answers made)", alone(publish, core))
        matched = alone(make_matched, core)
        show("match", matched)
        measured = alone(make_metrics, core)
        seconds = matched.seconds + measured.seconds
        peak = max(matched.peak_gib, measured.peak_gib)
        holds = seconds < TARGET_S and peak < TARGET_GIB
        target = f"target at scale 1: {TARGET_S:.0f} s, {TARGET_GIB:.0f} GiB"
        show("aggregate", measured, f"together {seconds:.1f} s; {target}: {_verdict(holds)}")
        show("analyses", alone(make_metrics, settings.load(given)))
        peer = alone(read_formulas, core)
        n_pairs = facts.load(_branch(core).facts).pairs.height
        scaled = peer.seconds * n_pairs / N_PEER_PAIRS
        note = f"{N_PEER_PAIRS} pairs; scaled up {scaled:,.0f} s, {scaled / seconds:,.0f} × ours"
        show("formulas", peer, note)


def _verdict(holds: bool) -> str:
    return "holds" if holds else "MISSED"


def _branch(run: Run) -> Branch:
    (branch,) = planned(run).branches
    return branch


def publish(run: Run) -> int:
    """Publish facts, prompts and made-up answers; returns the number of answers."""
    branch = _branch(run)
    branch.step(branch.facts).run()
    branch.step(branch.prompts).run()
    for artifact in (branch.admitted, *branch.answered()):
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
    for number, block in enumerate(branch.further):
        _sample(branch, block, number, run, labels, generator)
    for artifact, question in branch.asked():
        if artifact == branch.again:
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
        many = pl.concat([rows] * samples.block_size).sort("prompt_id")
        texts = _answered(many, labels, generator).group_by("prompt_id", maintain_order=True)
        found = texts.agg(texts="text").with_columns(block=pl.lit(number))
        block.write("samples", shard, found)


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


def read_formulas(run: Run) -> int:
    """The peer, on the first pairs; its time grows with their number. Returns that of answers."""
    branch = _branch(run)
    prompts = branch.prompts.read("prompts", branch.prompts.shards("prompts")[0])
    answers = branch.answers.read("generations", branch.answers.shards("generations")[0])
    labels = {
        pair["pair_id"]: [label for each in pair["objects"] for label in each["labels"]]
        for pair in branch.facts.read("pairs", "all").iter_rows(named=True)
    }
    chosen = prompts["pair_id"].unique(maintain_order=True).head(N_PEER_PAIRS).to_list()
    rows = prompts.filter(pl.col("pair_id").is_in(chosen)).join(answers, on="prompt_id")
    normaliser = Normaliser()
    lemmas: dict[str, list[list[str]]] = defaultdict(list)
    right: dict[str, list[bool]] = defaultdict(list)
    for pair_id, text in rows.select("pair_id", "text").iter_rows():
        answer = _lemmas(normaliser, text)
        lemmas[pair_id].append(answer)
        wanted = [_lemmas(normaliser, label) for label in labels[pair_id]]
        right[pair_id].append(any(_contains(answer, each) for each in wanted))
    for answers_of_pair in lemmas.values():
        sum(_contains(a, b) or _contains(b, a) for a, b in combinations(answers_of_pair, 2)) / max(
            1, len(answers_of_pair) * (len(answers_of_pair) - 1) / 2
        )
    for _ in range(run.metrics.n_draws):
        sum(random.choice(each) for each in right.values()) / len(right)
    means = [sum(each) / len(each) for each in right.values()]
    for _ in range(run.metrics.n_rounds):
        sum(random.choices(means, k=len(means))) / len(means)
    return rows.height


def _lemmas(normaliser: Normaliser, text: str) -> list[str]:
    (found,) = normaliser.normalise(pl.Series([text])).to_list()
    return list(found)


def _contains(a: list[str], b: list[str]) -> bool:
    return bool(b) and any(a[i : i + len(b)] == b for i in range(len(a) - len(b) + 1))


if __name__ == "__main__":
    main()
