"""The profile of a fact: by which of several runs it is found, as the first of KINDS that holds.

Source: Calderon et al. 2026 (arXiv:2602.14080) tell facts that are recalled, that are recalled only
by thinking, and that are encoded alone apart; arXiv:2603.09906 counts what k samples reach. The
order of the kinds and the thresholds are ours.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import polars as pl

from factsweep.operators.matching.text_folding import fold_case
from factsweep.operators.metrics.belief.knowledge_state import EVIDENCE
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratios
from factsweep.operators.metrics.shared.rows import pair_terms
from factsweep.operators.schemas import schema

# How a run asks, which is the kind of the facts that it finds in most wordings.
Way = Literal["recalled", "with demonstrations", "with a thought", "in reverse", "ranked"]
RECALLED, *_FURTHER = WAYS = get_args(Way)
WITH_SAMPLES, AT_TIMES, NEVER = "with samples", "at times", "never"
NOT_SAMPLED, NOT_IN_ALL = LEFT_OUT = ("not sampled", "not in every run")
# Each kind that no kind before it holds for, in words.
SAYS = {
    RECALLED: "right in most wordings, without demonstrations and thought",
    WITH_SAMPLES: "right in several samples, without demonstrations and thought",
    "with demonstrations": "right in most wordings behind demonstrations",
    "with a thought": "right in most wordings after a thought",
    "in reverse": "right in most wordings that ask for the subject",
    "ranked": "the right candidate comes first in most wordings",
    AT_TIMES: "some answer or sample is right, no kind above holds",
    NEVER: "no answer and no sample of any run is right",
    NOT_SAMPLED: "without the samples that other facts have",
    NOT_IN_ALL: "some run has no answer about it",
}
KINDS = tuple(kind for kind in SAYS if kind not in LEFT_OUT)
KIND = pl.Enum(list(SAYS))
MOST = 0.5  # more than this share of a fact's answered prompts is most wordings

PROFILE = schema("relation_id text, pair_id text, kind text") | {"kind": KIND}
COUNTS = schema("kind text, n_facts int, share float, ci_low float, ci_high float")


class RunEvidence(NamedTuple):
    """How a run asks, and its evidence on each fact (columns: EVIDENCE)."""

    way: Way
    evidence: pl.DataFrame


def profile_facts(
    facts: pl.DataFrame, runs: Sequence[RunEvidence], *, min_right_samples: int
) -> pl.DataFrame:
    """The kind of each fact (relation_id, pair_id): the table PROFILE.

    A run finds a fact if more than MOST of the fact's answered prompts are right. The first holds:

    - recalled: a run without demonstrations and thought finds it;
    - with samples: such a run has at least `min_right_samples` right samples of it;
    - with demonstrations, with a thought, in reverse, ranked: a run of that way finds it;
    - at times: some prompt or sample of some run is right; never: none is.

    A fact that a run has no answer to is not in every run. Where runs without demonstrations and
    thought sample some facts, the others are not sampled, recalled or not: else the recalled would
    be counted among all facts, and the others among the sampled ones.
    """
    tables = [run.evidence.with_columns(run=n, way=pl.lit(run.way)) for n, run in enumerate(runs)]
    rows = pl.concat(tables)
    is_direct = pl.col("way") == RECALLED
    is_right = (pl.col("share") > 0) | (pl.col("n_right_samples").fill_null(0) > 0)
    is_found = pl.col("share") > MOST
    values = rows.group_by("pair_id").agg(
        *(is_found.filter(pl.col("way") == way).any().alias(way) for way in WAYS),
        n_right_samples=pl.col("n_right_samples").filter(is_direct).max(),
        is_right=is_right.any(),
        n_runs=pl.col("run").n_unique(),
    )
    has_samples = rows.filter(is_direct)["n_samples"].count() > 0
    enough = pl.col("n_right_samples") >= min_right_samples
    conditions = {
        NOT_IN_ALL: pl.col("n_runs").fill_null(0) < len(runs),
        NOT_SAMPLED: pl.lit(has_samples) & enough.is_null(),
        RECALLED: pl.col(RECALLED),
        WITH_SAMPLES: enough,
        **{way: pl.col(way) for way in _FURTHER},
        AT_TIMES: pl.col("is_right"),
        NEVER: pl.lit(value=True),
    }
    kinds = (pl.when(holds).then(pl.lit(kind, KIND)) for kind, holds in conditions.items())
    profile = facts.join(values, on="pair_id", how="left", maintain_order="left")
    return profile.with_columns(kind=pl.coalesce(kinds)).select(PROFILE.names()).cast(PROFILE)


def shown_kinds(runs: Sequence[RunEvidence]) -> list[str]:
    """The kinds that runs of these ways can show."""
    ways = {run.way for run in runs}
    sampled = (run.evidence["n_samples"].count() > 0 for run in runs if run.way == RECALLED)
    possible = {*ways, AT_TIMES, NEVER} | ({WITH_SAMPLES} if any(sampled) else set())
    return [kind for kind in KINDS if kind in possible]


def count_kinds(profile: pl.DataFrame, kinds: Sequence[str], *, n_rounds: int) -> pl.DataFrame:
    """The facts of each kind, and their share with its 95 % interval over facts: COUNTS.

    Shares are of the facts that have a kind; the others (LEFT_OUT) are counted behind them.
    """
    n_by_kind = dict(profile["kind"].value_counts().iter_rows())
    decided = profile.filter(~pl.col("kind").is_in(LEFT_OUT))
    terms = {kind: pair_terms(decided, (pl.col("kind") == kind).mean()) for kind in kinds}
    estimates = bootstrap_ratios(terms, seed=0, n_rounds=n_rounds)
    rows = [(kind, n_by_kind.get(kind, 0), *estimates[kind].overall) for kind in kinds]
    rows += [(kind, n_by_kind.get(kind, 0), None, None, None) for kind in LEFT_OUT]
    return pl.DataFrame(rows, COUNTS, orient="row")


def join_facts(first: pl.DataFrame, other: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """The pairs of two data sets that are one fact: pair_id (of `other`), fact (of `first`).

    Both are canonical tables `pairs`. Two pairs are one fact if they have the id of the relation,
    the id of the subject or, where no ids agree, its first name, and a label of a right object in
    common; capitals do not count. Where none are, and subjects and objects have changed places,
    `other` asks in reverse (the second result). A pair that would be several facts is none.
    """
    first_facts = _labelled(first).select(pl.exclude("pair_id"), fact="pair_id")
    other_facts = _labelled(other)
    common = pl.col("labels").list.set_intersection("labels_right").list.len() > 0
    for key in ("subject_id", "name"):
        rows = other_facts.join(first_facts, on=["relation_id", key]).filter(common)
        if not rows.is_empty():
            return _one_fact(rows), False
    labelled = first_facts.with_columns(label="labels").explode("label")
    is_object = pl.col("labels").list.contains(pl.col("name_right"))
    swapped = other_facts.join(
        labelled, left_on=["relation_id", "name"], right_on=["relation_id", "label"]
    )
    rows = _one_fact(swapped.filter(is_object))
    return rows, not rows.is_empty()


def _labelled(pairs: pl.DataFrame) -> pl.DataFrame:
    """pair_id, relation_id, subject_id, name, labels (of all right objects)."""
    label_lists = pl.element().struct.field("labels").explode()
    return pairs.select(
        "pair_id",
        "relation_id",
        "subject_id",
        name=fold_case(pl.col("subjects").list.first()),
        labels=pl.col("objects").list.eval(fold_case(label_lists)),
    )


def _one_fact(rows: pl.DataFrame) -> pl.DataFrame:
    facts = rows.select("pair_id", "fact").unique(maintain_order=True)
    return facts.filter(pl.len().over("pair_id") == 1)


def as_facts(evidence: pl.DataFrame, joined: pl.DataFrame) -> pl.DataFrame:
    """The evidence on pairs as that on facts (`join_facts`); several pairs of a fact are one."""
    rows = evidence.join(joined, on="pair_id").with_columns(pair_id="fact")
    n, right = pl.col("n_prompts"), pl.col("share") * pl.col("n_prompts")
    samples = (
        pl.when(pl.col(name).count() > 0).then(pl.sum(name)).alias(name)
        for name in ("n_samples", "n_right_samples")
    )
    facts = rows.group_by("relation_id", "pair_id").agg(
        n.sum(), *samples, share=right.sum() / n.sum(), confidence=pl.mean("confidence")
    )
    return facts.select(EVIDENCE.names()).cast(EVIDENCE).sort("relation_id", "pair_id")
