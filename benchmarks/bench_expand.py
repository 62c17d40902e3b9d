"""Expansion of a full-size MyriadLAMA: the pipeline and a plain loop.

Makes a set of MyriadLAMA's size in its row format (41 relations × 100 templates, 24,643 pairs,
6.49 M prompts; the facts are made up), then measures, each in a process of its own:

    facts    rows as Parquet → relations, templates and pairs, checked
    expand   facts → prompts in prefix order, ranked prompts and contexts, as published shards
    loop     the peer: templates × pairs × names with str.replace, one JSON line a prompt

The loop has less to do: it finds no duplicates, ranks and checks nothing, flushes nothing to disk,
and its demonstrations are the first pairs of the relation. The loops come last, since each writes a
gigabyte. Where other programs run on the machine, the seconds of CPU say more than those of the
clock.

    python benchmarks/bench_expand.py [--scale 0.1]
"""

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from _fresh_process import in_fresh_process

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.myriadlama import rows_from_facts
from factsweep.operators.prompts.setting import MASK, Setting
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.run import Benchmark
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.stages.expand import Expand
from factsweep.pipeline.stages.facts import ReadFacts
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.store import Store

# Table 1 of the MyriadLAMA paper; the labels are what its derived triples come to.
N_PAIRS, N_TEMPLATES, N_NAMES, N_OBJECTS, N_LABELS = 24_643, 100, 64_928, 34_048, 80_000
SETTINGS = (Setting("zero-shot", 0), Setting("template", 4))
SEED, ROWS_PER_SHARD = 0, 16_384
TARGET_S, TARGET_GIB = 8.0, 2.0
_SYLLABLES = ("ka", "lo", "mi", "ren", "sto", "va")


class Cost(NamedTuple):
    """What some work took in a process of its own."""

    rows: int
    seconds: float
    cpu_seconds: float
    peak_gib: float


def main() -> None:
    """Make the set, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pairs (1: all)")
    scale = parser.parse_args().scale
    with tempfile.TemporaryDirectory(prefix="bench-expand-") as folder:
        show("(rows made)", alone(make_rows, Path(folder) / "rows", scale))
        overrides = ["benchmark=myriadlama", f"benchmark.path={folder}/rows"]
        benchmark = settings.load(overrides).benchmark
        source = Artifact(Store(folder), ReadFacts(benchmark, catalog.entry(benchmark.data)).recipe)
        show("facts", alone(read_facts, source, benchmark))
        ours = [_expanded(source, setting) for setting in SETTINGS]
        for setting, cost in zip(SETTINGS, ours, strict=True):
            peer = alone(loop_over_facts, Path(folder) / "prompts.jsonl", source, setting)
            ratio = f"{peer.seconds / cost.seconds:.2f} × the pipeline's time"
            show(f"loop {setting.name}", peer, ratio)


def _expanded(source: Artifact, setting: Setting) -> Cost:
    prompts = Artifact(source.store, _expand(source, setting).recipe)
    cost = alone(expand_facts, prompts, source, setting)
    holds = cost.seconds < TARGET_S and cost.peak_gib < TARGET_GIB
    target = f"target at scale 1: {TARGET_S:.0f} s, {TARGET_GIB:.0f} GiB"
    show(f"expand {setting.name}", cost, f"{target}: {'holds' if holds else 'MISSED'}")
    return cost


def show(name: str, cost: Cost, note: str = "") -> None:
    """Print a line of the table."""
    seconds = f"{cost.seconds:6.1f} s, {cost.cpu_seconds:5.1f} s of CPU"
    figures = f"{cost.rows:>10,} rows {seconds}, peak {cost.peak_gib:.2f} GiB"
    print(f"{name:<18} {figures}  {note}".rstrip(), flush=True)


def alone(work: Callable[..., int], *arguments: Any) -> Cost:
    """The cost of some work in a fresh process.

    This process stays small: on Linux the peak of a child starts at that of its parent. Earlier
    files are synced to disk first, so that no measurement waits for the files of another.
    """
    os.sync()
    return in_fresh_process(measured, work, *arguments)


def measured(work: Callable[..., int], *arguments: Any) -> Cost:
    """The cost of some work in this process."""
    started, cpu_started = time.perf_counter(), time.process_time()
    rows = work(*arguments)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return Cost(rows, seconds, cpu_seconds, peak_gib())


def peak_gib() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def read_facts(artifact: Artifact, benchmark: Benchmark) -> int:
    """The stage `facts`; returns the number of pairs."""
    ReadFacts(benchmark, catalog.entry(benchmark.data)).make(artifact)
    return artifact.rows("pairs")["all"]


def _expand(source: Artifact, setting: Setting) -> Expand:
    return Expand(source, "belief", setting, SEED, ROWS_PER_SHARD)


def expand_facts(artifact: Artifact, source: Artifact, setting: Setting) -> int:
    """The stage `expand`; returns the number of prompts."""
    _expand(source, setting).make(artifact)
    return sum(artifact.rows("prompts").values())


def loop_over_facts(target: Path, source: Artifact, setting: Setting) -> int:
    """The peer: every prompt in full, one JSON line each; returns their number."""
    pairs: dict[str, list[dict[str, Any]]] = {}
    for pair in source.read("pairs", "all").iter_rows(named=True):
        pairs.setdefault(pair["relation_id"], []).append(pair)
    count = 0
    with target.open("w") as file:
        for template in source.read("templates", "all").iter_rows(named=True):
            for line in _lines(template, pairs[template["relation_id"]], setting):
                file.write(json.dumps(line) + "\n")
                count += 1
    return count


def _lines(
    template: dict[str, str], pairs: list[dict[str, Any]], setting: Setting
) -> Iterator[dict[str, Any]]:
    question = template["text"].replace("[Y]", MASK)
    demonstrations = [
        f"Q: {question.replace('[X]', pair['subjects'][0])}\n"
        f"A: {pair['objects'][0]['labels'][0]}.\n"
        for pair in pairs[: setting.shots + 1]
    ]
    for number, pair in enumerate(pairs):
        other_demonstrations = demonstrations[:number] + demonstrations[number + 1 :]
        context = setting.instruction + "".join(other_demonstrations[: setting.shots])
        for index, name in enumerate(pair["subjects"]):
            yield {
                "prompt_id": f"{pair['pair_id']}.{template['template_id']}.{index}",
                "prompt": f"{context}Q: {question.replace('[X]', name)}\nA:",
            }


def make_rows(folder: Path, scale: float) -> int:
    """Write the rows of the made-up set, one file per relation; returns their number."""
    folder.mkdir()
    random = np.random.default_rng(SEED)
    relations = list(catalog.entry("myriadlama").relations)
    uneven = np.linspace(1, 3, len(relations))
    sizes = random.multinomial(round(N_PAIRS * scale), uneven / uneven.sum())
    n_rows = 0
    for relation, size in zip(relations, sizes, strict=True):
        rows = rows_from_facts(_relation(relation, int(size), random))
        rows.write_parquet(folder / f"{relation}.parquet")
        n_rows += rows.height
    return n_rows


def _relation(relation_id: str, n_pairs: int, random: np.random.Generator) -> Facts:
    """Made-up facts of a relation: as many names, objects and labels a pair as in the real set."""
    n_names = _shared_out(n_pairs, N_NAMES / N_PAIRS, random)
    n_objects = _shared_out(n_pairs, N_OBJECTS / N_PAIRS, random)
    pairs = {
        "relation_id": [relation_id] * n_pairs,
        "subject_id": [f"Q{number}" for number in range(n_pairs)],
        "subjects": [_names(n, random) for n in n_names],
        "objects": [_objects(n, random) for n in n_objects],
    }
    templates = {
        "relation_id": [relation_id] * N_TEMPLATES,
        "text": [_template(number, random) for number in range(N_TEMPLATES)],
        "origin": ["paraphrase" if n % 20 else "manual" for n in range(N_TEMPLATES)],
    }
    relations = {"relation_id": [relation_id], "label": [relation_id]}
    return Facts(*(pl.DataFrame(rows) for rows in (relations, templates, pairs)))


def _shared_out(parts: int, mean: float, random: np.random.Generator) -> list[int]:
    """One for each part, and the rest where it falls."""
    extra = random.multinomial(round(parts * (mean - 1)), np.full(parts, 1 / parts))
    return [1 + int(n) for n in extra]


def _objects(count: int, random: np.random.Generator) -> list[dict[str, Any]]:
    labels = _shared_out(count, N_LABELS / N_OBJECTS, random)
    return [
        {"object_id": f"Q{random.integers(10**7)}", "labels": _names(n, random)} for n in labels
    ]


def _names(count: int, random: np.random.Generator) -> list[str]:
    """Names of two words; here and there two subjects of a relation share one, as in life."""
    return [f"{_word(random).title()} {_word(random).title()}" for _ in range(count)]


def _template(number: int, random: np.random.Generator) -> str:
    words = " ".join(_word(random) for _ in range(6))
    statement, question = f"[X] {words} {number} [Y].", f"{words.title()} {number} [X]? [Y]."
    return question if number % 4 == 1 else statement


def _word(random: np.random.Generator) -> str:
    return "".join(_SYLLABLES[i] for i in random.integers(len(_SYLLABLES), size=3))


if __name__ == "__main__":
    main()
