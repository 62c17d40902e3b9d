"""Write the files of kamel-mini, in the layout of KAMEL's authors, from the YAML files beside it.

Edit questions.yaml or own_facts.yaml, run this, and put the checksum that it prints into
data_catalog/kamel-mini.yaml. The facts of `shared` relations are myriadlama-mini's.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from factsweep.operators.construction.kamel import Sizes, split_by_seed
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import DATE, NUMBER, files_from_facts, templates
from factsweep.pipeline.inputs import catalog

HERE = Path(__file__).parent
SIZES = Sizes(train=17, dev=2, test=10)


def files() -> dict[str, str]:
    """The set's files: path → content."""
    texts = yaml.safe_load((HERE / "questions.yaml").read_text())
    questions = {**texts["shared"], **texts["own"]}
    pairs = pl.DataFrame([*_shared(texts["shared"]), *_own(texts["own"])])
    drawn = split_by_seed(pairs, SIZES, seed=0).drop_nulls("split").sort("place")
    return files_from_facts(Facts(pl.DataFrame(), templates(questions), drawn))


def _shared(relations: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The pairs of myriadlama-mini."""
    source = yaml.safe_load((HERE / "../myriadlama-mini/facts.yaml").read_text())
    entities = source["entities"]
    for relation_id in relations:
        for subject, objects in source["facts"][relation_id].items():
            labels = [(each, _names(entities[each])) for each in objects]
            yield _pair(relation_id, entities[subject]["label"], labels)


def _own(relations: dict[str, str]) -> Iterator[dict[str, Any]]:
    source = yaml.safe_load((HERE / "own_facts.yaml").read_text())
    shared = yaml.safe_load((HERE / "../myriadlama-mini/facts.yaml").read_text())
    countries = {each["label"]: (q, _names(each)) for q, each in shared["entities"].items()}
    countries |= {names[0]: (q, names) for q, names in source["countries"].items()}
    for relation_id in relations:
        for subject, value in source[relation_id].items():
            if isinstance(value, list):
                labels = [countries[name] for name in value]
            elif isinstance(value, int):
                labels = [(NUMBER, [str(value)])]
            else:
                labels = [(DATE, [value.rpartition(" ")[2], value])]
            yield _pair(relation_id, subject, labels)


def _names(entity: dict[str, Any]) -> list[str]:
    return [entity["label"], *entity.get("aliases", [])]


def _pair(relation_id: str, subject: str, labels: list[tuple[str, list[str]]]) -> dict[str, Any]:
    objects = [{"object_id": object_id, "labels": names} for object_id, names in labels]
    return {
        "pair_id": f"{relation_id}.{subject}",
        "relation_id": relation_id,
        "subject_id": subject,
        "subjects": [subject],
        "objects": objects,
    }


def checksum(folder: Path) -> str:
    """The SHA-256 of the data files, as the catalog has it."""
    return catalog.checksum([*folder.glob("P*/*.jsonl"), folder / "question-templates.csv"])


if __name__ == "__main__":
    for name, content in files().items():
        target = HERE / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(content, encoding="utf-8")
    sys.stdout.write(f"{checksum(HERE)}\n")
