"""Write the files of distractors-mini from knowledge.yaml and the facts of myriadlama-mini.

Edit the YAML files, run this, and put the checksum and the counts that it prints into
data_catalog/distractors-mini.yaml.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from factsweep.operators.datasets.distractors import FACTS, TEMPLATES
from factsweep.operators.datasets.knowledge_base import (
    KnowledgeBase,
    check_knowledge_base,
    from_names,
)
from factsweep.operators.schemas import empty

HERE = Path(__file__).parent
MINI = HERE.parent / "myriadlama-mini"
TEMPLATES_PER_RELATION = 3
SUBJECTS_PER_RELATION = 18  # of which facts are asked; the others are known all the same


def knowledge_base() -> KnowledgeBase:
    """All that the two files say."""
    mini, more_triples = _yaml(MINI / "facts.yaml"), _yaml(HERE / "knowledge.yaml")
    names = {**mini["entities"], **more_triples["entities"], **more_triples["classes"]}
    rows = [
        {"entity_id": q, "labels": [e["label"], *e.get("aliases", [])]} for q, e in names.items()
    ]
    schema = {"entity_id": pl.String, "labels": pl.List(pl.String)}
    triples = pl.DataFrame(
        _triples(mini, more_triples), schema=empty("triples").schema, orient="row"
    )
    triples = triples.unique(["subject_id", "relation_id", "object_id"], maintain_order=True)
    base = from_names(pl.DataFrame(rows, schema=schema), triples)
    # Types are classes here, not the relations that an entity is an object of.
    classes = triples.filter(relation_id="P31").group_by("subject_id", maintain_order=True)
    types = classes.agg(types="object_id").rename({"subject_id": "entity_id"})
    entities = base.entities.drop("types").join(types, on="entity_id", how="left")
    return check_knowledge_base(KnowledgeBase(entities, triples))


def _triples(mini: dict[str, Any], triples: dict[str, Any]) -> Iterator[tuple[str | None, ...]]:
    """What was right once comes first, so that a fact of the mini set does not contradict it."""
    for relation, subjects in triples["past"].items():
        for subject, objects in subjects.items():
            yield from ((subject, relation, o, *span) for o, span in objects.items())
    for relation, facts in mini["facts"].items():
        yield from _timeless(relation, ((s, o) for s, found in facts.items() for o in found))
    for relation, facts in triples["triples"].items():
        yield from _timeless(relation, ((s, o) for o, found in facts.items() for s in found))
    entities = triples["entities"].items()
    yield from _timeless("P31", ((q, e["class"]) for q, e in entities if "class" in e))
    for class_id, said in triples["classes"].items():
        yield from _timeless("P31", ((q, class_id) for q in _members(mini["facts"], said)))


def _timeless(
    relation: str, pairs: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str, str, None, None]]:
    return ((subject, relation, object_, None, None) for subject, object_ in pairs)


def _members(facts: dict[str, Any], said: dict[str, Any]) -> Iterator[str]:
    subjects = [s for relation in said.get("subjects", []) for s in facts[relation]]
    objects = [o for r in said.get("objects", []) for found in facts[r].values() for o in found]
    yield from (q for q in dict.fromkeys([*subjects, *objects]) if q not in said.get("but", []))


def facts(base: KnowledgeBase) -> pl.DataFrame:
    """The facts of the first subjects of each relation, those aside that are right no more."""
    mini = _yaml(MINI / "facts.yaml")
    asked = [
        (relation, subject, object_)
        for relation, subjects in mini["facts"].items()
        for subject in list(subjects)[:SUBJECTS_PER_RELATION]
        for object_ in subjects[subject]
    ]
    rows = pl.DataFrame(asked, schema=["relation", "subject", "object"], orient="row")
    ended = base.triples.filter(pl.col("end").is_not_null())
    keys = {"subject_id": "subject", "relation_id": "relation", "object_id": "object"}
    rows = rows.join(ended.rename(keys), on=list(keys.values()), how="anti", maintain_order="left")
    labels = base.entities.select("entity_id", "popularity", label=pl.col("labels").list.first())
    for part in ("subject", "object"):
        named = labels.select(
            pl.col("entity_id").alias(part), pl.col("label").alias(f"{part}_label")
        )
        rows = rows.join(named, on=part, maintain_order="left")
    popular = labels.select(subject="entity_id", popularity="popularity")
    rows = rows.join(popular, on="subject", maintain_order="left")
    missing = [name for name in FACTS if name not in rows.columns]
    return rows.with_columns(pl.lit(None, FACTS[name]).alias(name) for name in missing).select(
        pl.col(name).cast(dtype) for name, dtype in FACTS.items()
    )


def templates() -> pl.DataFrame:
    """Manual templates and paraphrases that end in [Y], the first few of each relation."""
    found = []
    for relation, said in _yaml(MINI / "templates.yaml").items():
        texts = [t for group in said["templates"] for t in (group["manual"], *group["paraphrases"])]
        fit = [text for text in texts if text.endswith("[Y].") and "?" not in text]
        found += [(relation, text) for text in fit[:TEMPLATES_PER_RELATION]]
    return pl.DataFrame(found, schema=TEMPLATES, orient="row")


def _yaml(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


if __name__ == "__main__":
    from factsweep.operators.datasets.distractors import counts, facts_from_tables
    from factsweep.pipeline.inputs.catalog import checksum

    base = knowledge_base()
    facts(base).write_parquet(HERE / "facts.parquet", statistics=False)
    templates().write_csv(HERE / "templates.csv")
    base.entities.write_parquet(HERE / "entities.parquet", statistics=False)
    base.triples.write_parquet(HERE / "triples.parquet", statistics=False)
    files = sorted([*HERE.glob("*.parquet"), HERE / "templates.csv"])
    tables = {p.stem: pl.read_parquet(p) for p in files if p.suffix == ".parquet"}
    found = counts(facts_from_tables({**tables, "templates": templates()}))
    sys.stdout.write(f"{checksum(files)}\n{found}\n")
