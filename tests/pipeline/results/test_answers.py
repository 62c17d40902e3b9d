"""Answers beside what was asked, where prompts of several relations have the same text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.schemas import empty
from factsweep.pipeline.results.answers import answers
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.store import Store

Row = Mapping[str, Any]


def _made(folder: Path, stage: str, shards: Mapping[tuple[str, str], Row | None]) -> Artifact:
    artifact = Artifact(Store(str(folder)), Recipe(stage, 1, {}))
    artifact.begin()
    for (table, shard), row in shards.items():
        rows = [empty(table), *([pl.DataFrame([row])] if row else [])]
        artifact.write(table, shard, pl.concat(rows, how="diagonal_relaxed"))
    artifact.finish(list(dict.fromkeys(table for table, _ in shards)))
    return artifact


@pytest.fixture
def branch(tmp_path: Path) -> PastBranch:
    """Two relations that asked the same text; it was answered for the first, P17."""
    text = {"context_id": "zero-shot", "query": "Rome lies in"}
    first = {"prompt_id": "P17.Q1.000.0", "pair_id": "P17.Q1", **text}
    second = {"prompt_id": "P30.Q1.000.0", "pair_id": "P30.Q1", **text, "same_as": "P17.Q1.000.0"}
    context = {"context_id": "zero-shot", "text": ""}
    tables: dict[str, dict[tuple[str, str], Row | None]] = {
        "facts": {(table, "all"): None for table in ("relations", "templates", "pairs")},
        "prompts": {
            ("prompts", "P17.0000"): first,
            ("prompts", "P30.0000"): second,
            ("contexts", "P17.0000"): context,
            ("contexts", "P30.0000"): context,
        },
        "generations": {
            ("generations", "P17.0000"): {"prompt_id": "P17.Q1.000.0", "text": "Italy"},
            ("generations", "P30.0000"): None,
        },
        "matched": {},
    }
    made = {stage: _made(tmp_path, stage, shards) for stage, shards in tables.items()}
    return PastBranch(
        *("run", "gpt2", "mini", "belief", "zero-shot"),
        billions_of_parameters=0.1,
        training_cutoff=None,
        artifacts=made,
        record={},
    )


@pytest.mark.parametrize("relation", ["P17", "P30", None])
def test_answers_text_of_another_relation_has_its_answer(
    branch: PastBranch, relation: str | None
) -> None:
    found = answers(branch, relation)
    assert set(found["prompt_id"].str.head(3)) == ({relation} if relation else {"P17", "P30"})
    assert set(found["answer"]) == {"Italy"}
    assert "thought" not in found.columns  # of a model that does not think
