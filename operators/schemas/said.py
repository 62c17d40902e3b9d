"""What a model said: one row per prompt, as its engine gave it."""

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

_GENERATIONS = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("text", pa.string()),
        ("n_tokens", pa.uint16()),
        ("logprob", pa.float32()),
        ("finish_reason", pa.string()),
    ]
)

SCORES = pa.schema(
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
DISTRACTOR = pa.struct(
    [
        ("entity_id", pa.string()),
        ("label", pa.string()),
        ("logprob", pa.float64()),
        ("n_tokens", pa.uint32()),
    ]
)
CHANCES = (("subjects", pa.list_(pa.float64())), ("relations", pa.list_(pa.float64())))
_PREFERENCES = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("logprob", pa.float64()),  # of the right answer, as of each distractor
        ("label", pa.string()),
        ("n_tokens", pa.uint32()),
        ("open_logprob", pa.float64()),  # of the right answer's labels, whatever follows them
        # In the order in which they count: the retriever's, or by falling log-probability.
        ("distractors", pa.list_(DISTRACTOR)),
    ]
)

SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {
        "generations": _GENERATIONS,
        "canary": _GENERATIONS,  # of prompts that are decoded twice, the second time
        "samples": pa.schema(
            [("prompt_id", pa.string()), ("block", pa.uint16()), ("texts", pa.list_(pa.string()))]
        ),
        "thoughts": pa.schema(  # what a model thought before each answer to a prompt
            [
                ("prompt_id", pa.string()),
                ("texts", pa.list_(pa.string())),
                ("n_tokens", pa.list_(pa.uint32())),
                ("ended", pa.list_(pa.string())),  # as protocol.Thought says
            ]
        ),
        "masked": _PREDICTIONS,  # what an encoder model says at the mask
        "priors": _PREDICTIONS,  # and what it says to content-free prompts
        "scores": SCORES,  # the log-probability of a text, and of the candidate's tokens in it
        "rescored": SCORES,  # of some texts again, in another order
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
        "chances": pa.schema([("prompt_id", pa.string()), *CHANCES]),
        "errors": pa.schema(
            [
                ("prompt_id", pa.string()),
                ("stage", pa.string()),
                ("reason", pa.string()),
                ("detail", pa.string()),
            ]
        ),
    }
)
