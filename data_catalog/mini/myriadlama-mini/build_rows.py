"""Write rows.parquet, in MyriadLAMA's row format, from templates.yaml and facts.yaml beside it.

Edit the two YAML files, run this, and put the checksum that it prints into
data_catalog/myriadlama-mini.yaml.
"""

import sys
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.myriadlama import rows_from_facts
from factsweep.pipeline.inputs import catalog

HERE = Path(__file__).parent


def rows() -> pl.DataFrame:
    """One row a subject-relation pair and template."""
    templates = yaml.safe_load((HERE / "templates.yaml").read_text())
    source = yaml.safe_load((HERE / "facts.yaml").read_text())
    pairs = [
        _pair(source["entities"], relation_id, subject, objects)
        for relation_id, facts in source["facts"].items()
        for subject, objects in facts.items()
    ]
    texts = [row for relation_id in source["facts"] for row in _templates(relation_id, templates)]
    relations = [{"relation_id": r, "label": templates[r]["label"]} for r in source["facts"]]
    return rows_from_facts(Facts(*(pl.DataFrame(each) for each in (relations, texts, pairs))))


def _templates(relation_id: str, templates: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"relation_id": relation_id, "text": text, "origin": origin}
        for group in templates[relation_id]["templates"]
        for origin, texts in (("manual", [group["manual"]]), ("paraphrase", group["paraphrases"]))
        for text in texts
    ]


def _pair(
    entities: dict[str, Any], relation_id: str, subject: str, objects: list[str]
) -> dict[str, Any]:
    return {
        "relation_id": relation_id,
        "subject_id": subject,
        "subjects": _names(entities[subject]),
        "objects": [{"object_id": q, "labels": _names(entities[q])} for q in objects],
    }


def _names(entity: dict[str, Any]) -> list[str]:
    return [entity["label"], *entity.get("aliases", [])]


if __name__ == "__main__":
    target = HERE / "rows.parquet"
    rows().write_parquet(target)
    sys.stdout.write(f"{catalog.checksum([target])}\n")
