"""The canonical tables, declared as SQL declares them: columns and their types, in order."""

import re
from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

_TYPES: Mapping[str, pa.DataType] = {
    "text": pa.string(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    **{kind: getattr(pa, kind)() for kind in ("float32", "uint8", "uint16", "uint32")},
}


def declared(columns: str, **types: pa.DataType) -> pa.Schema:
    """The schema of columns such as `prompt_id text, block uint16, texts text[]`.

    `[]` is a list; what follows `--` in a line is a comment. `types` are further ones by name.

    >>> declared("a text, b int[]  -- two").names
    ['a', 'b']
    """
    known = {**_TYPES, **types}
    parts = (each.split() for each in re.sub("--.*", "", columns).split(",") if each.strip())
    return pa.schema([(name, _type(kind, known)) for name, kind in parts])


def _type(kind: str, known: Mapping[str, pa.DataType]) -> pa.DataType:
    return pa.list_(_type(kind[:-2], known)) if kind.endswith("[]") else known[kind]


# What a benchmark asks for, and what a knowledge base says of its entities.
_OBJECT = pa.struct(declared("object_id text, labels text[]"))
_FACTS = {
    "relations": declared("relation_id text, label text"),
    "templates": declared("""
        template_id text, relation_id text, text text, origin text, group uint16, style text
    """),
    "pairs": declared(
        """
        pair_id text, relation_id text, subject_id text, subjects text[], objects object[],
        split text
        """,
        object=_OBJECT,
    ),
    # Of a pair of PRobELM, by their rank in plausibility.
    "candidates": declared("""
        candidate_id text, pair_id text, relation_id text, frame text, label text, rank int,
        is_positive bool
    """),
    # Of a pair whose templates have words by gender: those of the subject and the object, m or f.
    "forms": declared("pair_id text, relation_id text, forms text"),
    # Of a pair whose row declares it: name, date, number or quantity.
    "object_types": declared("pair_id text, relation_id text, type text"),
    # Of a fact, where a method compares facts by them.
    "details": declared("""
        pair_id text, relation_id text, object_id text, start text, end text,
        popularity float,  -- null: not known
        sample text,       -- the part of the set that it belongs to; null: none
        human_score float  -- how well people found it known (0 to 1), or null
    """),
    # Of a knowledge base. Of the labels, the first is the entity's own, the others are aliases.
    "entities": declared("""
        entity_id text, labels text[], types text[], description text, popularity float
    """),
    # What a knowledge base says of its entities. Times are ISO text of any precision (2021,
    # 2021-01, 2021-01-20); null: not known, or none.
    "triples": declared("subject_id text, relation_id text, object_id text, start text, end text"),
    # The entities whose plausibility is compared. Rank 0: the right answer; from 1: the distractors
    # in the retriever's order; null where the model itself gives the order (optimal, exact).
    "candidate_sets": declared("candidates_id text, entity_id text, rank uint32, labels text[]"),
}

# Every fact in every name and template, what stands before it, and which are asked.
_PROMPT = declared("""
    prompt_id text, pair_id text, template_id text, subject_index uint16, context_id text,
    query text,
    same_as text,             -- the earlier prompt with the same text, decoded in its place
    calibration_rank uint32,  -- of one prompt per pair, or of all of a group that are scored:
                              -- the sampled ones are those of the lowest ranks
    entity_start uint32,      -- where texts are scored, the characters of the candidate
    entity_end uint32,
    candidates_id text,       -- where entities are compared: the candidate set,
    answer_id text,           -- the right answer (an entity_id), and those of the set
    left_out text[]           -- that are no distractors of this fact (entity_ids)
""")
_PROMPTS = {
    "contexts": declared("context_id text, setting text, text text, demonstrations text[]"),
    "prompts": _PROMPT,
    "ranked": _PROMPT,  # those that may be sampled: one a pair
    "content_free": _PROMPT,  # without a subject or a pair: what a template says by itself
    # What the full run asks of each pair, of which a budget is a part.
    "crossed": declared("relation_id text, pair_id text, n_names int, n_templates int"),
    # The prompts of a budget; an answer stands for all prompts of its text, so that the one that is
    # asked (source_id) may not be in the sample itself: `needed` are those asked.
    "chosen": declared("""
        prompt_id text, pair_id text, template_id text, subject_index uint16, source_id text
    """),
    "needed": declared("prompt_id text"),
}

# What a model said: one row per prompt, as its engine gave it.
_GENERATION = declared("""
    prompt_id text, text text, n_tokens uint16, logprob float32, finish_reason text
""")
_SCORE = "n_tokens uint32, logprob float, entity_n_tokens uint32, entity_logprob float"
_SCORES = declared(f"prompt_id text, {_SCORE}")
# `candidate_probabilities` are those of the single tokens among the relation's right answers
# (operators.prompts.masked).
_PREDICTION = declared("""
    prompt_id text, token_id int, token text, probability float, candidate_probabilities float32[]
""")
# How plausible a model finds an entity after a cloze: the log-probability in nats, summed over the
# labels and their endings; the likeliest label, and its number of tokens.
_DISTRACTOR = pa.struct(declared("entity_id text, label text, logprob float, n_tokens uint32"))
_PREFERENCE = declared(
    """
    prompt_id text, logprob float, label text, n_tokens uint32,  -- of the right answer
    open_logprob float,       -- of the right answer's labels, whatever follows them
    distractors distractor[]  -- in the order in which they count: the retriever's, or by falling
                              -- log-probability
    """,
    distractor=_DISTRACTOR,
)
_BEAM = "texts text[], logprobs float[], top_tokens text[]"
_CHANCE = "subjects float[], relations float[]"
SAID = {
    "generations": _GENERATION,
    "canary": _GENERATION,  # of prompts that are decoded twice, the second time
    "samples": declared("prompt_id text, block uint16, texts text[]"),
    # What a model thought before each answer to a prompt; `ended` as protocol.Thought says.
    "thoughts": declared("prompt_id text, texts text[], n_tokens uint32[], ended text[]"),
    "masked": _PREDICTION,  # what an encoder model says at the mask
    "priors": _PREDICTION,  # and what it says to content-free prompts
    "scores": _SCORES,  # the log-probability of a text, and of the candidate's tokens in it
    "rescored": _SCORES,  # of some texts again, in another order
    "preferences": _PREFERENCE,  # the right answer of a cloze next to its distractors
    "preferred_again": _PREFERENCE,  # of some clozes again, their candidates in another order
    # The best sequences of a beam search from the bare cloze, and the likeliest next tokens.
    "beams": declared(f"prompt_id text, {_BEAM}"),
    # How likely the right answer's labels are behind clozes of other subjects, and of other
    # relations: nats, one number per cloze. Of one prompt of each pair.
    "chances": declared(f"prompt_id text, {_CHANCE}"),
    "errors": declared("prompt_id text, stage text, reason text, detail text"),
}

# Answers next to the facts: what metrics are computed from.
_IDS = "prompt_id text, relation_id text, pair_id text"
_ASKED = f"{_IDS}, template_id text, subject_index uint16"
_MATCHED = {
    # `key`: the lemmas as one text (operators.matching.lemmas); null where there are none.
    "answers": declared(f"{_ASKED}, key text, n_lemmas uint16, correct bool"),
    # How many of a prompt's samples are right.
    "sampled": declared(f"{_IDS}, n_samples int, n_right_samples int"),
    "given": declared(f"{_IDS}, text text"),  # as it was given, to whichever prompt of the text
    "calibration": declared(f"{_IDS}, confidence float, correct bool"),
    # The table `scores`, by candidate.
    "scored": declared(f"""
        candidate_id text, relation_id text, pair_id text, setting text, {_SCORE}
    """),
    # Which distractors the right answer beats: of the first 1, 2, 3, … (`n_beaten`), and the most
    # plausible ones, in order.
    "preferred": declared(
        f"""
        {_ASKED}, logprob float, open_logprob float, label text, n_tokens uint32,
        n_distractors uint32, n_beaten uint32[], hardest distractor[]
        """,
        distractor=_DISTRACTOR,
    ),
    "continued": declared(f"{_ASKED}, {_BEAM}"),  # what a model says by itself after a cloze
    "by_chance": declared(f"pair_id text, relation_id text, {_CHANCE}"),
    # How often another name suits a masked model better than the label.
    "gains": declared("""
        relation_id text, pair_id text, metric text, n_units int, n_gaining int, n_aliases int,
        n_gains int
    """),
    # What a masked model has no single token for.
    "left_out": declared("""
        relation_id text, n_labels int, n_labels_left_out int, n_objects int,
        n_objects_left_out int, n_pairs int, n_pairs_left_out int
    """),
    # What a template says to a prompt without a subject.
    "biases": declared("relation_id text, template_id text, probabilities float32[]"),
}

# What is published: one row per number.
_SETTING = """
    model text, benchmark text,  -- the names in the configuration (model.name, benchmark.name)
    setting text,  -- how it was asked: zero-shot, 4-random, 4-relation (any number of shots)
    variant text   -- departures from the defaults, joined by commas; null: none
"""
_RESULTS = {
    "metrics": declared(f"""
        {_SETTING},
        slice text,    -- the part that was measured, such as relation=P36; null: everything
        metric text,   -- the name, as below
        value float,   -- the number; null where it is undefined
        ci_low float, ci_high float,  -- a 95 % interval; null where there is none
        n int,         -- the prompts behind the row that have an answer
        n_failed int   -- the prompts that should be behind the row and have no answer
    """),
    # Min@n and Avg@n for every n; sample: of which facts, null: of all.
    "curve": declared(f"{_SETTING}, sample text, n int, min float, avg float, n_facts int"),
    # Of a configuration with people, in each fold; `chosen`: the highest tau on the other folds,
    # over all clozes.
    "agreement": declared(f"""
        {_SETTING}, measure text, hyperparameters text, n_clozes int, fold int, chosen bool,
        tau_others float, tau float, n int
    """),
    # Of a configuration, between flawed and corrected sentences.
    "robustness": declared(f"{_SETTING}, measure text, hyperparameters text, tau float, n int"),
    "bins": declared(f"{_SETTING}, bin int, n int, mean_confidence float, mean_accuracy float"),
    "estimates": declared(f"""
        {_SETTING},
        metric text,
        value float,   -- the estimate; null where it cannot be made
        full_low float, full_high float,  -- a 95 % interval of what the full run would give
        ci_low float, ci_high float,  -- a 95 % interval of other facts of these relations
        share float,   -- the part of the full run's prompts that was asked and answered
        n int,         -- the number of these prompts
        why text,      -- why there is no estimate
        n_effective float,  -- with a control: how many prompts would say as much without it
        control text   -- the artifact of the control's answers
    """),
}

SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {**_FACTS, **_PROMPTS, **SAID, **_MATCHED, **_RESULTS}
)
