"""Prompts: every fact in every name and template, what stands before it, and which are asked."""

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

_PROMPTS = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("pair_id", pa.string()),
        ("template_id", pa.string()),
        ("subject_index", pa.uint16()),
        ("context_id", pa.string()),
        ("query", pa.string()),
        # The earlier prompt with the very same text, which is decoded in this one's place.
        ("same_as", pa.string()),
        # One prompt per pair has a rank; the sampled prompts are those of the lowest ranks. Where
        # texts are scored, all candidates of a group have one.
        ("calibration_rank", pa.uint32()),
        # Where texts are scored: the characters of the candidate in the whole text.
        ("entity_start", pa.uint32()),
        ("entity_end", pa.uint32()),
        # Where entities are compared: the candidate set, the right answer (an entity_id), and the
        # candidates of the set that are no distractors of this fact (entity_ids).
        ("candidates_id", pa.string()),
        ("answer_id", pa.string()),
        ("left_out", pa.list_(pa.string())),
    ]
)

SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {
        "contexts": pa.schema(
            [
                ("context_id", pa.string()),
                ("setting", pa.string()),
                ("text", pa.string()),
                ("demonstrations", pa.list_(pa.string())),
            ]
        ),
        "prompts": _PROMPTS,
        "ranked": _PROMPTS,  # those that may be sampled: one a pair
        "content_free": _PROMPTS,  # without a subject or a pair: what a template says by itself
        # What the full run asks of each pair, of which a budget is a part.
        "crossed": pa.schema(
            [
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("n_names", pa.int64()),
                ("n_templates", pa.int64()),
            ]
        ),
        # The prompts of a budget; an answer stands for all prompts of its text, so that the one
        # that is asked (source_id) may not be in the sample itself: `needed` are those asked. All
        # up to a block are the prompts of a smaller budget.
        "chosen": pa.schema(
            [
                ("prompt_id", pa.string()),
                ("pair_id", pa.string()),
                ("template_id", pa.string()),
                ("subject_index", pa.uint16()),
                ("source_id", pa.string()),
                ("block", pa.uint8()),
            ]
        ),
        "needed": pa.schema([("prompt_id", pa.string()), ("block", pa.uint8())]),
    }
)
