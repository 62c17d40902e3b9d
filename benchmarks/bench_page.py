"""The page of results at the size of the full MyriadLAMA: its bytes, and how long it takes.

    python benchmarks/bench_page.py [--settings 4] [--scale 0.1]

41 relations, 4,100 templates, 34,000 pairs, 6.49 million prompts in each setting. The answers are
made up: draws from the relation's objects, so that a page has as many different texts as a real
one.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.matching.lemmas import key
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Result
from factsweep.operators.metrics.belief.belief import ESTIMATED, answer_rows, condense
from factsweep.operators.schemas import SCHEMAS, empty
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.results.pages import results_page
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.store import Store

RELATIONS, TEMPLATES, PAIRS, NAMES = 41, 100, 34_000, 1.91
ROWS_PER_SHARD, SHARDS_READ = 16_384, 5
SYLLABLES = ("ka", "ren", "to", "mi", "lo", "ster", "burg", "an", "shi", "vel", "dor", "qua", "ne")


def words(rng: np.random.Generator, n: int) -> list[str]:
    """Words that look like names."""
    return ["".join(row).title() for row in rng.choice(SYLLABLES, size=(n, 4))]


def made_up(rng: np.random.Generator, n_pairs: int) -> Facts:
    """Facts in the shape of MyriadLAMA."""
    ids = [f"P{number}" for number in range(RELATIONS)]
    relation = [ids[i % RELATIONS] for i in range(n_pairs)]
    objects = {object_id: words(rng, 120) for object_id in ids}
    object_numbers = rng.integers(0, 120, n_pairs)
    pairs = {
        "pair_id": [f"{r}.Q{i}" for i, r in enumerate(relation)],
        "relation_id": relation,
        "subject_id": [f"Q{i}" for i in range(n_pairs)],
        "subjects": [[a, b] for a, b in zip(words(rng, n_pairs), words(rng, n_pairs), strict=True)],
        "objects": [
            [{"object_id": f"Q{d}", "labels": [objects[r][d]]}]
            for r, d in zip(relation, object_numbers, strict=True)
        ],
        "split": [None] * n_pairs,
    }
    templates = [
        (
            f"{r}.{n:03}",
            r,
            f"[X] {' '.join(words(rng, 5)).lower()} [Y].",
            "paraphrase",
            0,
            "statement",
        )
        for r in ids
        for n in range(TEMPLATES)
    ]
    names = list(zip(ids, words(rng, RELATIONS), strict=True))
    return Facts(
        pl.DataFrame(names, schema=empty("relations").schema, orient="row"),
        pl.DataFrame(templates, schema=empty("templates").schema, orient="row"),
        pl.DataFrame(pairs, schema=empty("pairs").schema),
    )


def answers(facts: Facts, relation: str, rng: np.random.Generator) -> pl.DataFrame:
    """The relation's prompts and answers: a third right, the rest random."""
    facts_of_relation = facts.of(relation)
    label = pl.col("objects").list.first().struct.field("labels").list.first()
    pairs = facts_of_relation.pairs.select(
        "relation_id", "pair_id", pl.col("subjects").list.first(), label=label
    )
    rows = facts_of_relation.templates.select("template_id", "text").join(pairs, how="cross")
    rows = pl.concat([rows, rows.sample(fraction=NAMES - 1, seed=0)]).with_row_index("i")
    labels = pl.Series(rng.choice(pairs["label"].to_numpy(), rows.height))
    return rows.select(
        "relation_id",
        "pair_id",
        "template_id",
        prompt_id=pl.format("{}.{}", "pair_id", "i"),
        subject_index=pl.lit(0, pl.UInt16),
        query=pl.format("Q: {}\nA:", pl.concat_str("subjects", "text", separator=" ")),
        text=pl.when(pl.lit(pl.Series(rng.random(rows.height) < 0.33)))
        .then("label")
        .otherwise(labels),
        correct=pl.lit(pl.Series(rng.random(rows.height) < 0.33)),
    )


def branch(store: Store, facts: Facts, setting: str, seed: int) -> PastBranch:
    """A setting's artifacts, as far as a page reads them."""
    rng = np.random.default_rng(seed)
    fields = {"model": "made-up", "setting": setting, "variant": None}
    stages = ("facts", "prompts", "admitted", "generations", "matched", "metrics")
    artifacts = {
        stage: Artifact(store, Recipe(stage, 1, {**fields, "seed": seed})) for stage in stages
    }
    answer_fields = {**fields, "setting": {"name": setting, "as": "text"}, "seed": seed}
    artifacts["prompts"] = Artifact(store, Recipe("prompts", 1, answer_fields))
    for table in ("relations", "templates", "pairs"):
        artifacts["facts"].write(table, "all", getattr(facts, table))
    parts = []
    for relation in facts.relations["relation_id"]:
        rows = answers(facts, relation, rng)
        lemmas = pl.concat_list(pl.col("text").str.to_lowercase())
        matched = rows.with_columns(key=key(lemmas.alias("key")), n_lemmas=pl.lit(1, pl.UInt16))
        artifacts["matched"].write("answers", relation, matched)
        artifacts["matched"].write("sampled", relation, empty("sampled"))
        parts.append(matched.sample(min(5_000, matched.height), seed=seed))
        for number in range(SHARDS_READ):
            shard = rows.slice(2 * number * ROWS_PER_SHARD, ROWS_PER_SHARD)
            prompts = pl.concat([empty("prompts"), shard], how="diagonal_relaxed")
            generations = pl.concat([empty("generations"), shard], how="diagonal_relaxed")
            artifacts["prompts"].write("prompts", f"{relation}.{number}", prompts)
            artifacts["prompts"].write("contexts", f"{relation}.{number}", empty("contexts"))
            artifacts["generations"].write("generations", f"{relation}.{number}", generations)
    metrics = measured(pl.concat(parts), facts, fields)
    artifacts["metrics"].write("metrics", "all", metrics)
    artifacts["metrics"].write("bins", "all", empty("bins"))
    for artifact in artifacts.values():
        artifact.finish([table for table in SCHEMAS if artifact.shards(table)])
    model = {"name": "made-up", "id": "made-up", "source": "none", "dtype": "float32"}
    run = {"model": model, "seed": 0, "decoding": {"engine": "none"}}
    record = {"run": run, "model_revision": "none", "commit": None, "versions": {}}
    record["hardware"] = {"cpus": 0, "machine": "none"}
    return PastBranch(
        setting, "made-up", "myriadlama", "belief", setting, 1.0, None, artifacts, record
    )


def measured(rows: pl.DataFrame, facts: Facts, fields: dict[str, str | None]) -> pl.DataFrame:
    """The metrics of answers in a part of the answers."""
    none = facts.relations.select("relation_id", n_failed=pl.lit(0, pl.Int64))
    condensed = condense(rows)
    estimates = condensed.estimates(ESTIMATED, seed=0, n_rounds=20)
    metrics = answer_rows(condensed.counts(none), estimates)
    names = [
        pl.lit(value, pl.String).alias(name) for name, value in fields.items() if name != "variant"
    ]
    return metrics.with_columns(*names, benchmark=pl.lit("myriadlama"))


def main() -> None:
    """Make the artifacts, time the page, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=4)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pairs (1: all)")
    args = parser.parse_args()
    facts = made_up(np.random.default_rng(0), round(PAIRS * args.scale))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        branches = [branch(store, facts, f"setting-{i}", i) for i in range(args.settings)]
        started = time.monotonic()
        metrics = pl.concat(
            [measured_branch.metrics.read_all("metrics") for measured_branch in branches]
        )
        bins = empty("bins")
        result = Result(
            facts,
            {"metrics": metrics, "bins": bins},
            costs=metrics.clear(),
            published=catalog.load_published("belief"),
        )
        content = results_page(branches, result, METHODS["belief"].show.report(result), [])
        seconds = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"{args.settings} settings: {len(content):,} bytes, {seconds:.0f} s, peak {peak:.1f} GiB")
    Path(tempfile.gettempdir(), "page.html").write_bytes(content)


if __name__ == "__main__":
    main()
