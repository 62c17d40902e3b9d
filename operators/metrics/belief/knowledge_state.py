"""The state of a run's knowledge of each fact: robust, by the right prompt, when sampled, or none.

A fact is a subject-relation pair with its right objects. The states are a partition; a fact's state
is the first of STATES whose condition holds:

- known robustly: share ≥ robust_share;
- depends on the prompt: share > 0;
- only when sampled: no prompt is right, and at least min_right_samples samples are;
- confidently wrong: none of these, and confidence ≥ confident;
- unknown: all others, also facts that were not sampled.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import columns, schema

STATES = (
    "known robustly",
    "depends on the prompt",
    "only when sampled",
    "confidently wrong",
    "unknown",
)
STATE = pl.Enum(STATES)

SAMPLED = columns("sampled")
EVIDENCE = schema("""
    relation_id text, pair_id text, n_prompts int, share float, n_samples int, n_right_samples int,
    confidence float
""")
_MOVED: dict[str, pl.DataType] = dict.fromkeys(("before", "after"), STATE)
CHANGES = (
    schema("""
    relation_id text, pair_id text, before text, after text, share_before float, share_after float,
    change text
""")
    | _MOVED
)
MOVES = schema("relation_id text, before text, after text, n_pairs int") | _MOVED

_FACT = ("relation_id", "pair_id")
_SHARE = "share of prompts from above 0 to 1"


@dataclass(frozen=True)
class Thresholds:
    """Where one state ends and the next begins.

    `robust_share`: the share of its prompts under which a fact is right, to be known robustly.
    `min_right_samples`: the right samples that a fact needs to be known only when sampled.
    `confident`: the confidence from which a wrong answer is confidently wrong.

    Raises:
        InputError: a threshold is out of its range.
    """

    robust_share: float
    min_right_samples: int
    confident: float

    def __post_init__(self) -> None:
        if not 0 < self.robust_share <= 1:
            raise InputError(f"robust_share is {self.robust_share}; give a {_SHARE}.")
        if self.min_right_samples < 1:
            raise InputError(f"min_right_samples is {self.min_right_samples}; give 1 or more.")
        if not 0 < self.confident <= 1:
            raise InputError(f"confident is {self.confident}; give a confidence above 0, up to 1.")


def count_right_samples(samples: pl.DataFrame) -> pl.DataFrame:
    """Count each prompt's samples, and the right ones (columns: SAMPLED).

    `samples` has prompt_id, relation_id, pair_id and correct: a sample is right as a greedy answer
    is (BELIEF, section 3.2, item 1).
    """
    counts = samples.group_by("prompt_id", *_FACT)
    sums = counts.agg(n_samples=pl.len(), n_right_samples=pl.sum("correct"))
    return sums.select(SAMPLED.names()).cast(SAMPLED).sort("prompt_id")


def evidence(
    answers: pl.DataFrame,
    sampled: pl.DataFrame | None = None,
    calibration: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Gather a run's evidence on each fact with an answer: one row per pair (columns: EVIDENCE).

    `answers` has one row per prompt with an answer, `sampled` the columns SAMPLED. `share` is the
    share of the pair's prompts that are answered correctly, `confidence` the mean over its prompts
    in `calibration`; values that were not measured are null.
    """
    facts = _by_fact(answers, pl.len().alias("n_prompts"), pl.mean("correct").alias("share"))
    sums = (pl.sum("n_samples", "n_right_samples"), pl.mean("confidence"))
    for table, values in zip((sampled, calibration), sums, strict=True):
        rows = EVIDENCE.to_frame() if table is None else table
        facts = facts.join(_by_fact(rows, values), on=_FACT, how="left")
    return facts.select(EVIDENCE.names()).cast(EVIDENCE).sort(_FACT)


def state_changes(
    first: pl.DataFrame, second: pl.DataFrame, thresholds: Thresholds
) -> pl.DataFrame:
    """Compare each fact's states in two runs (EVIDENCE): the table CHANGES.

    Facts of only one run are left out, and a kind of evidence that only one run has of a fact
    counts in neither. `change` is null, or

    - gained, lost: right under some prompt in the second run alone, in the first alone;
    - firmer, looser: known robustly in the second alone, in the first alone, and right in both.
    """
    first_facts, second_facts = (
        run.select(EVIDENCE.names()).cast(EVIDENCE) for run in (first, second)
    )
    facts = first_facts.join(second_facts, on=_FACT, suffix="_second")
    states = {"before": _state(thresholds), "after": _state(thresholds, "_second")}
    changes = facts.select(*_FACT, **states, share_before="share", share_after="share_second")
    return changes.with_columns(change=_change()).select(CHANGES.names()).sort(_FACT)


def state_moves(changes: pl.DataFrame) -> pl.DataFrame:
    """Count the facts by their states before and after, over all (null) and by relation: MOVES.

    Columns in: CHANGES. Moves that no fact made have no row.
    """
    everything = changes.with_columns(relation_id=pl.lit(None, pl.String))
    moves = pl.concat([everything, changes]).group_by("relation_id", "before", "after")
    counts = moves.agg(n_pairs=pl.len().cast(pl.Int64))
    return counts.select(MOVES.names()).sort("relation_id", "before", "after")


def _by_fact(rows: pl.DataFrame, *values: pl.Expr) -> pl.DataFrame:
    return rows.group_by(pl.col(_FACT).cast(pl.String)).agg(values)


def _state(thresholds: Thresholds, run: str = "") -> pl.Expr:
    """The state of a run's fact, from evidence that both runs have."""
    share = pl.col(f"share{run}")
    least = {"n_right_samples": thresholds.min_right_samples, "confidence": thresholds.confident}
    sampled, confident = (
        (pl.col(f"{name}{run}") >= bound)
        & pl.all_horizontal(pl.col(name, f"{name}_second").is_not_null())
        for name, bound in least.items()
    )
    conditions = (share >= thresholds.robust_share, share > 0, sampled, confident, pl.lit(True))
    states = (pl.lit(state, STATE) for state in STATES)
    return pl.coalesce(
        pl.when(condition).then(state) for condition, state in zip(conditions, states, strict=True)
    )


def _change() -> pl.Expr:
    right_before, right_after = pl.col("share_before") > 0, pl.col("share_after") > 0
    robust_before, robust_after = (pl.col(name) == STATES[0] for name in ("before", "after"))
    conditions = {
        "gained": right_after & ~right_before,
        "lost": right_before & ~right_after,
        "firmer": robust_after & ~robust_before,
        "looser": robust_before & ~robust_after,
    }
    return pl.coalesce(
        pl.when(condition).then(pl.lit(change)) for change, condition in conditions.items()
    )


SHARING = schema("run text, other text, n_covered int, n_shared int, sharing float")


def knowledge_sharing(runs: Iterable[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
    """Give for each ordered pair of runs the share (0 to 1) of the first's knowledge in the second.

    A run covers the prompts that it answers correctly; two runs are compared on the prompts that
    both have an answer to. `runs` gives a name and a table (prompt_id, correct) each, and is read
    one at a time. Columns: SHARING; sharing is null where the run covers nothing.

    Source: BELIEF, section 6.3, Figure 2 (2025: section 6.4, Figure 4).

    >>> run = pl.DataFrame({"prompt_id": ["p", "q", "r"], "correct": [True, True, False]})
    >>> other = pl.DataFrame({"prompt_id": ["p", "q", "s"], "correct": [True, False, True]})
    >>> knowledge_sharing([("A", run), ("B", other)]).rows()
    [('A', 'A', 2, 2, 1.0), ('A', 'B', 2, 1, 0.5), ('B', 'A', 1, 1, 1.0), ('B', 'B', 2, 2, 1.0)]
    """
    names: list[str] = []
    wide = pl.DataFrame(schema={"prompt_id": pl.String})
    for name, answers in runs:
        column = pl.col("correct").cast(pl.Boolean).alias(str(len(names)))
        prompts = answers.select(pl.col("prompt_id").cast(pl.String), column)
        wide = wide.join(prompts, on="prompt_id", how="full", coalesce=True)
        names.append(name)
    wide = wide.drop("prompt_id")
    answered = [column.is_not_null().to_numpy() for column in wide]
    covered = [column.fill_null(False).to_numpy() for column in wide]
    rows = [
        (
            names[i],
            names[j],
            *(np.count_nonzero(covered[i] & table[j]) for table in (answered, covered)),
        )
        for i, j in product(range(len(names)), repeat=2)
    ]
    share = pl.when(pl.col("n_covered") > 0).then(pl.col("n_shared") / pl.col("n_covered"))
    counts = pl.DataFrame(rows, schema=list(SHARING)[:4], orient="row")
    return counts.with_columns(sharing=share).cast(SHARING)
