"""Semantic distractors of a large knowledge base: seconds and memory, and a dense alternative.

    python benchmarks/bench_retrieval.py --entities 1000000 --facts 2000
    python benchmarks/bench_retrieval.py --entities 20000 --facts 500 --dense

The base is made by seed: features as frequent as in Wikidata (few in most bags, many in few), and
types; the largest has a third of all entities. `--dense` computes the same with dense
vectors in one matrix (small bases only), and checks that the order is the same.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable

import numpy as np
import polars as pl

from factsweep.operators.datasets.knowledge_base import KnowledgeBase
from factsweep.operators.prompts.retrieval import kinds, retrieve_distractors, vectors
from factsweep.operators.schemas import empty

TRIPLES_PER_ENTITY = 8
N_RELATIONS = 1_000
N_TYPES = 2_000


def made(n_entities: int, rng: np.random.Generator) -> KnowledgeBase:
    """A base with Zipf's frequencies of relations, objects and types."""
    n = n_entities * TRIPLES_PER_ENTITY
    ids = pl.Series([f"Q{i}" for i in range(n_entities)])
    subjects = rng.integers(n_entities, size=n)
    relations = rng.zipf(1.5, n) % N_RELATIONS
    objects = rng.zipf(1.3, n) % n_entities
    types = rng.zipf(1.5, n_entities) % N_TYPES
    labels = ids.alias("labels").to_frame().select(pl.concat_list("labels")).to_series()
    entities = pl.DataFrame(
        {
            "entity_id": ids,
            "labels": labels,
            "types": pl.Series([[f"T{type_number}"] for type_number in types]),
            "description": pl.Series([None] * n_entities, dtype=pl.String),
            "popularity": np.zeros(n_entities),
        }
    )
    triples = pl.DataFrame(
        {
            "subject_id": ids.gather(subjects),
            "relation_id": pl.Series(relations).cast(pl.String),
            "object_id": ids.gather(objects),
        }
    ).unique(maintain_order=True)
    triples = triples.with_columns(start=pl.lit(None, pl.String), end=pl.lit(None, pl.String))
    return KnowledgeBase(entities, triples.select(empty("triples").columns))


def asked(base: KnowledgeBase, n_facts: int, rng: np.random.Generator) -> pl.DataFrame:
    """Facts whose answers are drawn from all entities."""
    rows = rng.integers(base.entities.height, size=n_facts)
    return pl.DataFrame(
        {
            "pair_id": [f"F{i}" for i in range(n_facts)],
            "subject_id": [f"S{i}" for i in range(n_facts)],
            "relation_id": "P1",
            "answer_id": base.entities["entity_id"].gather(rows),
        }
    )


def dense(base: KnowledgeBase, facts: pl.DataFrame, n: int) -> dict[str, list[float]]:
    """The cosines of the nearest n of each fact, by dense vectors and a sort of all."""
    matrix = vectors(base).toarray()
    nearest = {}
    for kind in kinds(base, facts):
        for question in kind.questions:
            candidates = question.distractors(kind.members)
            cosine = matrix[candidates] @ matrix[question.answer]
            nearest[question.pair_id] = np.round(np.sort(cosine)[::-1][:n], 9).tolist()
    return nearest


def cosines(
    base: KnowledgeBase, facts: pl.DataFrame, distractors: pl.DataFrame
) -> dict[str, list[float]]:
    """The cosines of the retrieved entities, in order."""
    matrix = vectors(base)
    row = {q: i for i, q in enumerate(base.entities["entity_id"])}
    answers = dict(facts.select("pair_id", "answer_id").iter_rows())
    lists: dict[str, list[float]] = {pair_id: [] for pair_id in facts["pair_id"]}
    for pair_id, rows_of_pair in distractors.group_by("pair_id", maintain_order=True):
        near = matrix[[row[q] for q in rows_of_pair["entity_id"]]]
        answer_vector = matrix[row[answers[str(pair_id[0])]]]
        lists[str(pair_id[0])] = np.round((near @ answer_vector.T).toarray().ravel(), 9).tolist()
    return lists


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--facts", type=int, default=2_000)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--dense", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    base = made(args.entities, rng)
    facts = asked(base, args.facts, rng)
    out: dict[str, object] = {"entities": args.entities, "triples": base.triples.height}
    out |= {"facts": args.facts, "n": args.n}
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = list[pl.DataFrame]()
    cpu = time.process_time()
    out["seconds"] = timed(
        lambda: results.append(retrieve_distractors(base, facts, "semantic", args.n, seed=0))
    )
    out["cpu_seconds"] = time.process_time() - cpu
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out["random_seconds"] = timed(
        lambda: retrieve_distractors(base, facts, "random", args.n, seed=0)
    )
    out |= {"gib_of_the_base": memory_before / 2**20, "gib_at_most": after / 2**20}
    if args.dense:
        dense_cosines = dict[str, list[float]]()
        out["dense_seconds"] = timed(lambda: dense_cosines.update(dense(base, facts, args.n)))
        near = cosines(base, facts, results[0])
        are_equal = all(
            np.allclose(near[pair_id], dense_cosines[pair_id], atol=1e-8)
            for pair_id in dense_cosines
        )
        out["same_cosines"] = bool(are_equal)
        out["gib_dense"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(out))


if __name__ == "__main__":
    main()
