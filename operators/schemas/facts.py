"""Facts: what a benchmark asks for, and what a knowledge base says of its entities."""

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

_OBJECT = pa.struct([("object_id", pa.string()), ("labels", pa.list_(pa.string()))])

SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {
        "relations": pa.schema([("relation_id", pa.string()), ("label", pa.string())]),
        "templates": pa.schema(
            [
                ("template_id", pa.string()),
                ("relation_id", pa.string()),
                ("text", pa.string()),
                ("origin", pa.string()),
                ("group", pa.uint16()),
                ("style", pa.string()),
            ]
        ),
        "pairs": pa.schema(
            [
                ("pair_id", pa.string()),
                ("relation_id", pa.string()),
                ("subject_id", pa.string()),
                ("subjects", pa.list_(pa.string())),
                ("objects", pa.list_(_OBJECT)),
                ("split", pa.string()),
            ]
        ),
        "candidates": pa.schema(  # of a pair of PRobELM, by their rank in plausibility
            [
                ("candidate_id", pa.string()),
                ("pair_id", pa.string()),
                ("relation_id", pa.string()),
                ("frame", pa.string()),
                ("label", pa.string()),
                ("rank", pa.int64()),
                ("is_positive", pa.bool_()),
            ]
        ),
        "forms": pa.schema(  # of a pair whose templates have words by gender
            [
                ("pair_id", pa.string()),
                ("relation_id", pa.string()),
                ("forms", pa.string()),  # of the subject and of the object: m or f
            ]
        ),
        "details": pa.schema(  # of a fact, where a method compares facts by them
            [
                ("pair_id", pa.string()),
                ("relation_id", pa.string()),
                ("object_id", pa.string()),
                ("start", pa.string()),
                ("end", pa.string()),
                ("popularity", pa.float64()),  # null: not known
                ("sample", pa.string()),  # the part of the set that it belongs to; null: none
                ("human_score", pa.float64()),  # how well people found it known (0 to 1), or null
            ]
        ),
        "entities": pa.schema(  # of a knowledge base
            [
                ("entity_id", pa.string()),
                ("labels", pa.list_(pa.string())),  # the first label, then the aliases
                ("types", pa.list_(pa.string())),
                ("description", pa.string()),
                ("popularity", pa.float64()),
            ]
        ),
        "triples": pa.schema(  # what a knowledge base says of its entities
            [
                ("subject_id", pa.string()),
                ("relation_id", pa.string()),
                ("object_id", pa.string()),
                # ISO text of any precision (2021, 2021-01, 2021-01-20); null: not known, or none
                ("start", pa.string()),
                ("end", pa.string()),
            ]
        ),
        "candidate_sets": pa.schema(  # the entities whose plausibility is compared
            [
                ("candidates_id", pa.string()),
                ("entity_id", pa.string()),
                # 0: the right answer; from 1: the distractors in the retriever's order. Null where
                # the model itself gives the order (optimal, exact).
                ("rank", pa.uint32()),
                ("labels", pa.list_(pa.string())),
            ]
        ),
    }
)
