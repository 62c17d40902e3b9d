"""The canonical tables: each schema is written once here and used by writer, reader and test."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl
import pyarrow as pa

from operators.errors import InputError

_OBJECT = pa.struct([("object_id", pa.string()), ("labels", pa.list_(pa.string()))])

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
_GENERATIONS = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("text", pa.string()),
        ("n_tokens", pa.uint16()),
        ("logprob", pa.float32()),
        ("finish_reason", pa.string()),
    ]
)

_SCORES = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("n_tokens", pa.uint32()),
        ("logprob", pa.float64()),
        ("entity_n_tokens", pa.uint32()),
        ("entity_logprob", pa.float64()),
    ]
)
_PREDICTIONS = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("token_id", pa.int64()),
        ("token", pa.string()),
        ("probability", pa.float64()),
        # Of the single tokens among the relation's right answers (operators.prompts.candidates).
        ("candidate_probabilities", pa.list_(pa.float32())),
    ]
)
# How plausible a model finds an entity after a cloze: the log-probability in nats, summed over the
# labels and their endings; the likeliest label, and its number of tokens.
_DISTRACTOR = pa.struct(
    [
        ("entity_id", pa.string()),
        ("label", pa.string()),
        ("logprob", pa.float64()),
        ("n_tokens", pa.uint32()),
    ]
)
_CHANCES = (("subjects", pa.list_(pa.float64())), ("relations", pa.list_(pa.float64())))
_PREFERENCES = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("logprob", pa.float64()),  # of the right answer, as of each distractor
        ("label", pa.string()),
        ("n_tokens", pa.uint32()),
        ("open_logprob", pa.float64()),  # of the right answer's labels, whatever follows them
        # In the order in which they count: the retriever's, or by falling log-probability.
        ("distractors", pa.list_(_DISTRACTOR)),
    ]
)

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
        "generations": _GENERATIONS,
        "canary": _GENERATIONS,  # of prompts that are decoded twice, the second time
        "masked": _PREDICTIONS,  # what an encoder model says at the mask
        "priors": _PREDICTIONS,  # and what it says to content-free prompts
        "scores": _SCORES,  # the log-probability of a text, and of the candidate's tokens in it
        "rescored": _SCORES,  # of some texts again, in another order
        "scored": pa.schema(
            [
                ("candidate_id", pa.string()),
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("setting", pa.string()),
                *(field for field in _SCORES if field.name != "prompt_id"),
            ]
        ),
        "preferences": _PREFERENCES,  # the right answer of a cloze next to its distractors
        "preferred_again": _PREFERENCES,  # of some clozes again, their candidates in another order
        "beams": pa.schema(  # the best sequences of a beam search from the bare cloze
            [
                ("prompt_id", pa.string()),
                ("texts", pa.list_(pa.string())),
                ("logprobs", pa.list_(pa.float64())),
                ("top_tokens", pa.list_(pa.string())),  # the likeliest next tokens
            ]
        ),
        # How likely the right answer's labels are behind clozes of other subjects, and of other
        # relations: nats, one number per cloze. Of one prompt of each pair.
        "chances": pa.schema([("prompt_id", pa.string()), *_CHANCES]),
        "by_chance": pa.schema(  # the same, by pair
            [("pair_id", pa.string()), ("relation_id", pa.string()), *_CHANCES]
        ),
        "preferred": pa.schema(  # which distractors the right answer beats
            [
                ("prompt_id", pa.string()),
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("template_id", pa.string()),
                ("subject_index", pa.uint16()),
                ("logprob", pa.float64()),
                ("open_logprob", pa.float64()),
                ("label", pa.string()),
                ("n_tokens", pa.uint32()),
                ("n_distractors", pa.uint32()),
                ("n_beaten", pa.list_(pa.uint32())),  # of the first 1, 2, 3, … distractors
                ("hardest", pa.list_(_DISTRACTOR)),  # the most plausible distractors, in order
            ]
        ),
        "continued": pa.schema(  # what a model says by itself after a cloze (the table beams)
            [
                ("prompt_id", pa.string()),
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("template_id", pa.string()),
                ("subject_index", pa.uint16()),
                ("texts", pa.list_(pa.string())),
                ("logprobs", pa.list_(pa.float64())),
                ("top_tokens", pa.list_(pa.string())),
            ]
        ),
        "samples": pa.schema(
            [
                ("prompt_id", pa.string()),
                ("block", pa.uint16()),
                ("texts", pa.list_(pa.string())),
            ]
        ),
        "errors": pa.schema(
            [
                ("prompt_id", pa.string()),
                ("stage", pa.string()),
                ("reason", pa.string()),
                ("detail", pa.string()),
            ]
        ),
        # The prompts of a budget; an answer stands for all prompts of its text, so that the one
        # that is asked (source_id) may not be in the sample itself: `needed` are those asked.
        "chosen": pa.schema(
            [
                ("prompt_id", pa.string()),
                ("pair_id", pa.string()),
                ("template_id", pa.string()),
                ("subject_index", pa.uint16()),
                ("source_id", pa.string()),
            ]
        ),
        "needed": pa.schema([("prompt_id", pa.string())]),
        "estimates": pa.schema(
            [
                ("model", pa.string()),
                ("benchmark", pa.string()),
                ("setting", pa.string()),
                ("variant", pa.string()),
                ("metric", pa.string()),
                ("value", pa.float64()),
                ("full_low", pa.float64()),
                ("full_high", pa.float64()),
                ("ci_low", pa.float64()),
                ("ci_high", pa.float64()),
                ("share", pa.float64()),
                ("n", pa.int64()),
                ("why", pa.string()),
            ]
        ),
        "estimated_templates": pa.schema(
            [
                ("model", pa.string()),
                ("benchmark", pa.string()),
                ("setting", pa.string()),
                ("variant", pa.string()),
                ("relation_id", pa.string()),
                ("template_id", pa.string()),
                ("n", pa.int64()),
                ("accuracy", pa.float64()),
                ("shrunk", pa.float64()),
                ("full_low", pa.float64()),
                ("full_high", pa.float64()),
            ]
        ),
        "variance": pa.schema(
            [
                ("model", pa.string()),
                ("benchmark", pa.string()),
                ("setting", pa.string()),
                ("variant", pa.string()),
                ("source", pa.string()),
                ("variance", pa.float64()),
                ("full_error", pa.float64()),
                ("other_error", pa.float64()),
            ]
        ),
        # What the full run asks of each pair, of which a budget is a part.
        "crossed": pa.schema(
            [
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("n_names", pa.int64()),
                ("n_templates", pa.int64()),
            ]
        ),
        "answers": pa.schema(
            [
                ("prompt_id", pa.string()),
                ("relation_id", pa.string()),
                ("pair_id", pa.string()),
                ("template_id", pa.string()),
                ("subject_index", pa.uint16()),
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
        "metrics": pa.schema(
            [
                ("model", pa.string()),
                ("benchmark", pa.string()),
                ("setting", pa.string()),
                ("variant", pa.string()),
                ("slice", pa.string()),
                ("metric", pa.string()),
                ("value", pa.float64()),
                ("ci_low", pa.float64()),
                ("ci_high", pa.float64()),
                ("n", pa.int64()),
                ("n_failed", pa.int64()),
            ]
        ),
        "curve": pa.schema(  # Min@n and Avg@n for every n; sample: of which facts, null: of all
            [
                ("model", pa.string()),
                ("benchmark", pa.string()),
                ("setting", pa.string()),
                ("variant", pa.string()),
                ("sample", pa.string()),
                ("n", pa.int64()),
                ("min", pa.float64()),
                ("avg", pa.float64()),
                ("n_facts", pa.int64()),
            ]
        ),
        "agreement": pa.schema(  # of a configuration with people, in each fold
            [
                ("model", pa.string()),
                ("benchmark", pa.string()),
                ("setting", pa.string()),
                ("variant", pa.string()),
                ("measure", pa.string()),
                ("hyperparameters", pa.string()),
                ("n_clozes", pa.int64()),
                ("fold", pa.int64()),
                ("chosen", pa.bool_()),
                ("tau_others", pa.float64()),
                ("tau", pa.float64()),
                ("n", pa.int64()),
            ]
        ),
        "robustness": pa.schema(  # of a configuration, between flawed and corrected sentences
            [
                ("model", pa.string()),
                ("benchmark", pa.string()),
                ("setting", pa.string()),
                ("variant", pa.string()),
                ("measure", pa.string()),
                ("hyperparameters", pa.string()),
                ("tau", pa.float64()),
                ("n", pa.int64()),
            ]
        ),
        "bins": pa.schema(
            [
                ("model", pa.string()),
                ("benchmark", pa.string()),
                ("setting", pa.string()),
                ("variant", pa.string()),
                ("bin", pa.int64()),
                ("n", pa.int64()),
                ("mean_confidence", pa.float64()),
                ("mean_accuracy", pa.float64()),
            ]
        ),
    }
)

# The column in which no value may stand twice.
KEYS: Mapping[str, str] = MappingProxyType(
    {
        "relations": "relation_id",
        "templates": "template_id",
        "pairs": "pair_id",
        "candidates": "candidate_id",
        "prompts": "prompt_id",
        "ranked": "prompt_id",
        "content_free": "prompt_id",
        "masked": "prompt_id",
        "entities": "entity_id",
        "preferences": "prompt_id",
        "preferred_again": "prompt_id",
        "beams": "prompt_id",
        "chances": "prompt_id",
        "by_chance": "pair_id",
        "preferred": "prompt_id",
        "continued": "prompt_id",
        "scores": "prompt_id",
        "rescored": "prompt_id",
        "priors": "prompt_id",
        "generations": "prompt_id",
        "canary": "prompt_id",
        "samples": "prompt_id",
        "errors": "prompt_id",
        "chosen": "prompt_id",
        "needed": "prompt_id",
        "crossed": "pair_id",
        "answers": "prompt_id",
        "calibration": "prompt_id",
        "given": "prompt_id",
        "sampled": "prompt_id",
    }
)


def conform(frame: pl.DataFrame, table: str) -> pa.Table:
    """The frame as an Arrow table of the canonical schema, columns in its order.

    Raises:
        InputError: a column is missing or does not convert.
    """
    schema = SCHEMAS[table]
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(f"table {table}: column {missing[0]} is missing; add it.")
    try:
        return frame.select(schema.names).to_arrow().cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"table {table}: {error}; expected {schema.to_string()}.") from error


def empty(table: str) -> pl.DataFrame:
    """A frame with the columns of a canonical table and no rows."""
    frame = pl.from_arrow(SCHEMAS[table].empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame
