"""Answers next to the facts: what metrics are computed from."""

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from factsweep.operators.schemas.said import CHANCES, DISTRACTOR, SCORES

_PROMPT = (
    ("prompt_id", pa.string()),
    ("relation_id", pa.string()),
    ("pair_id", pa.string()),
    ("template_id", pa.string()),
    ("subject_index", pa.uint16()),
)

SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {
        "answers": pa.schema(
            [
                *_PROMPT,
                # The lemmas as one text (operators.matching.lemmas); null where there are none.
                ("key", pa.string()),
                ("n_lemmas", pa.uint16()),
                ("correct", pa.bool_()),
            ]
        ),
        "sampled": pa.schema(  # how many of a prompt's samples are right
            [
                ("prompt_id", pa.string()),
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("n_samples", pa.int64()),
                ("n_right_samples", pa.int64()),
            ]
        ),
        "given": pa.schema(  # an answer as it was given, to whichever prompt of the same text
            [
                ("prompt_id", pa.string()),
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("text", pa.string()),
            ]
        ),
        "calibration": pa.schema(
            [
                ("prompt_id", pa.string()),
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("confidence", pa.float64()),
                ("correct", pa.bool_()),
            ]
        ),
        "scored": pa.schema(  # the table `scores`, by candidate
            [
                ("candidate_id", pa.string()),
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("setting", pa.string()),
                *(field for field in SCORES if field.name != "prompt_id"),
            ]
        ),
        "preferred": pa.schema(  # which distractors the right answer beats
            [
                *_PROMPT,
                ("logprob", pa.float64()),
                ("open_logprob", pa.float64()),
                ("label", pa.string()),
                ("n_tokens", pa.uint32()),
                ("n_distractors", pa.uint32()),
                ("n_beaten", pa.list_(pa.uint32())),  # of the first 1, 2, 3, … distractors
                ("hardest", pa.list_(DISTRACTOR)),  # the most plausible distractors, in order
            ]
        ),
        "continued": pa.schema(  # what a model says by itself after a cloze (the table beams)
            [
                *_PROMPT,
                ("texts", pa.list_(pa.string())),
                ("logprobs", pa.list_(pa.float64())),
                ("top_tokens", pa.list_(pa.string())),
            ]
        ),
        "by_chance": pa.schema(  # the table `chances`, by pair
            [("pair_id", pa.string()), ("relation_id", pa.string()), *CHANCES]
        ),
        "gains": pa.schema(  # how often another name suits a masked model better than the label
            [
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("metric", pa.string()),
                ("n_units", pa.int64()),
                ("n_gaining", pa.int64()),
                ("n_aliases", pa.int64()),
                ("n_gains", pa.int64()),
            ]
        ),
        "left_out": pa.schema(  # what a masked model has no single token for
            [
                ("relation_id", pa.string()),
                ("n_labels", pa.int64()),
                ("n_labels_left_out", pa.int64()),
                ("n_objects", pa.int64()),
                ("n_objects_left_out", pa.int64()),
                ("n_pairs", pa.int64()),
                ("n_pairs_left_out", pa.int64()),
            ]
        ),
        "biases": pa.schema(  # what a template says to a prompt without a subject
            [
                ("relation_id", pa.string()),
                ("template_id", pa.string()),
                ("probabilities", pa.list_(pa.float32())),
            ]
        ),
    }
)
