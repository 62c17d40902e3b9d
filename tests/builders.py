"""What several test modules build: tables, facts, answers, runs that are done, refusals."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.schemas import empty
from factsweep.operators.tables.shared.paper_table import PUBLISHED_SCHEMA
from factsweep.pipeline.cli import main
from factsweep.pipeline.stages.plan import Plan

ROOT = Path(__file__).parents[1]

# A subject's names, and the labels of each of its objects.
Pair = tuple[list[str], list[list[str]]]
Relation = tuple[list[str], Mapping[str, Pair]]


def frame(schema: str | Mapping[str, Any], *rows: Any, **everywhere: Any) -> pl.DataFrame:
    """A table of a schema, or of one by its name in `operators.schemas`.

    Rows are mappings (what they lack is null), or tuples of all columns but those `everywhere`.
    """
    kinds = dict(empty(schema).schema if isinstance(schema, str) else schema)
    names = [name for name in kinds if name not in everywhere]
    cells = (r if isinstance(r, Mapping) else dict(zip(names, r, strict=True)) for r in rows)
    return pl.DataFrame([{**everywhere, **cell} for cell in cells], schema=kinds)


def select_given_metrics(metrics: pl.DataFrame) -> pl.DataFrame:
    """The rows of metrics that need neither samples nor a second decode, so `score` has them."""
    of_second_decode = ["ovconf", "ece", "brier", "auroc", "aurc", "aurc_excess", "prr"]
    is_second = pl.col("metric").is_in([*of_second_decode, "flip_rate", "cut_share"])
    is_sampled = pl.col("metric").str.starts_with("pass_at_")
    is_kind = pl.col("variant").str.starts_with("confidence=").fill_null(value=False)
    return metrics.filter(~(is_second | is_sampled | is_kind))


def template(relation: str, number: int, text: str) -> dict[str, Any]:
    """A template of facts; the first is manual."""
    return {
        "template_id": f"{relation}.{number:03d}",
        "relation_id": relation,
        "text": text,
        "origin": "paraphrase" if number else "manual",
        "group": 0,
        "style": "question" if "?" in text else "statement",
    }


def pair(relation: str, subject: str, names: list[str], labels: list[list[str]]) -> dict[str, Any]:
    """A pair of facts, with the labels of each of its objects."""
    return {
        "pair_id": f"{relation}.{subject}",
        "relation_id": relation,
        "subject_id": subject,
        "subjects": names,
        "objects": [
            {"object_id": f"O{i}", "labels": object_labels}
            for i, object_labels in enumerate(labels)
        ],
        "split": None,
    }


def facts(relations: Mapping[str, Relation]) -> Facts:
    """Facts from {relation: (templates, {subject: (names, labels of each object)})}."""
    rows = relations.items()
    return Facts(
        frame("relations", *({"relation_id": r, "label": r} for r in relations)),
        frame("templates", *(template(r, i, t) for r, (ts, _) in rows for i, t in enumerate(ts))),
        frame(
            "pairs",
            *(
                pair(r, s, *names_and_labels)
                for r, (_, ps) in rows
                for s, names_and_labels in ps.items()
            ),
        ),
    )


def published_numbers(method: str) -> pl.DataFrame:
    """The papers' numbers of a method, as the catalog has them."""
    path = ROOT / f"data_catalog/published/{method}.csv"
    return pl.read_csv(path, schema=PUBLISHED_SCHEMA)


def lines_of(path: Path) -> list[str]:
    """The lines of a file that may not be there."""
    return path.read_text().splitlines() if path.exists() else []


def results_of(plan: Plan) -> Path:
    """The folder of a run's results."""
    return Path(plan.run.results) / plan.run.name


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence with which a command is refused."""
    try:
        ended = main(arguments)
    except SystemExit as stopped:
        ended = int(str(stopped.code))
    out, err = capsys.readouterr()
    assert (ended, out) == (2, "")
    assert err.startswith("factsweep: ")
    assert err.count("\n") == 1
    return str(err.strip())
