"""A set like KAMEL from triples, labels and questions."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from factsweep.operators.construction import kamel
from factsweep.operators.construction.kamel import Sizes
from factsweep.operators.construction.set_card import Origin
from factsweep.operators.datasets.kamel import files_from_facts, questions_of
from factsweep.pipeline.building.set_folder import (
    check_new,
    describe_omissions,
    describe_set,
    publish,
)
from factsweep.pipeline.inputs.files import check_file, read_rows
from factsweep.pipeline.machine.text_files import text


def build_kamel(
    triples: Path,
    labels: Path,
    questions: Path,
    out: Path,
    *,
    seed: int,
    sizes: Sequence[int],
    max_answers: int,
    origin: Origin | None = None,
) -> Iterator[str]:
    """Write a set like KAMEL into the new folder `out`; yields lines on it and its omissions.

    `triples` and `labels` are Parquet or JSONL files with the columns TRIPLES and LABELS of
    operators.construction.kamel, `questions` has lines as `P36, What is the capital of [S]?`.
    With an `origin` the folder has its card, and croissant.json.

    Raises:
        InputError: a file is missing or unfit, no relation is left, or `out` exists already.
    """
    check_new(out)
    check_file(questions)
    built = kamel.build(
        read_rows(triples),
        read_rows(labels),
        questions_of(str(questions), text(questions)),
        seed=seed,
        sizes=Sizes(*sizes),
        max_answers=max_answers,
    )
    files, facts = files_from_facts(built.facts), built.facts
    n_relations, n_queries = facts.relations.height, facts.pairs.height
    names = {"train": "train", "validation": "dev", "test": "test"}
    card = describe_set(
        out.name,
        files,
        origin,
        counts={"relations": n_relations, "queries": n_queries},
        n_rows=n_queries,
        splits={"default": {split: f"*/{name}.jsonl" for split, name in names.items()}},
    )
    publish(out, {**files, **card})
    yield f"{out}: {n_relations} relations, {n_queries:,} queries"
    yield from describe_omissions(built.dropped)
