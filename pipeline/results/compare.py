"""compare: two past runs, prompt by prompt: what changed, which facts were gained and lost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from operators.errors import InputError
from operators.methods import METHODS
from operators.methods.ability import GENERATE
from operators.methods.method import Report
from operators.metrics.belief.consist import By
from operators.metrics.belief.knowledge_state import (
    Thresholds,
    evidence,
    state_changes,
    state_moves,
)
from operators.metrics.comparing.comparison import (
    compare,
    compare_ranked,
    corrected,
    gained_and_lost,
)
from operators.metrics.comparing.paired_terms import paired_calibration_terms, paired_terms
from operators.metrics.comparing.verdict import HIGHER_IS_BETTER, Bar, Verdict, verdict, verdicts
from operators.tables.runs import comparison as tables
from pipeline.config import folders
from pipeline.config.limits import Count, Share, Text
from pipeline.config.recipe import NoNumber
from pipeline.config.typed import build
from pipeline.results import past
from pipeline.results.past import PastBranch
from pipeline.stages import facts as facts_stage
from pipeline.storage.artifact import Artifact
from pipeline.storage.recipe import differences

# What two models may differ in: the model itself, its answers' file, and the name of the night.
_OF_THE_MODEL = {"model", "answers", "repetition"}

_READS = NoNumber("compare reads what runs have published, and publishes nothing")


@dataclass(frozen=True)
class Comparison:
    """What counts as a change (conf/comparison/)."""

    robust_share: Annotated[Share, _READS]
    min_right_samples: Annotated[Count, _READS]
    confident: Annotated[Share, _READS]
    smallest_difference: Annotated[float, Field(ge=0, le=1_000_000), _READS]
    alpha: Annotated[float, Field(gt=0, lt=1), _READS]
    min_facts: Annotated[Count, _READS]
    n_rounds: Annotated[int, Field(ge=1, le=1_000_000), _READS]
    decides: Annotated[tuple[Text, ...], _READS]


@dataclass(frozen=True)
class Compared:
    """One setting of two runs: what is written, and the verdict."""

    setting: str
    benchmark: str
    names: tuple[str, str]
    departures: tuple[str, ...]
    flip_rates: tuple[float | None, float | None]
    report: Report
    verdict: Verdict

    @property
    def lost(self) -> tuple[str, ...]:
        """The facts that the first run knows and the second does not, the largest change first."""
        rows = self.report.tables["facts"].filter(change="lost")
        return tuple(f"{s} ({r})" for s, r in rows.select("subject", "relation").iter_rows())

    @property
    def n_gained(self) -> int:
        """How many facts the second run alone knows."""
        return self.report.tables["facts"].filter(change="gained").height


def settings(overrides: Mapping[str, Any]) -> Comparison:
    """The default configuration with some fields changed.

    Raises:
        InputError: an unknown field, or a value of the wrong type or out of its range.
    """
    content = folders.content(folders.files("comparison")["default"])
    given = {**content, **overrides} if isinstance(content, dict) else content
    found = build(Comparison, given, "comparison")
    for metric in found.decides:
        if metric not in HIGHER_IS_BETTER:
            known = ", ".join(HIGHER_IS_BETTER)
            raise InputError(f"comparison.decides names {metric}; a verdict is about {known}.")
    return found


def compared(
    first: str, second: str, results: str, given: Comparison, *, anyway: bool
) -> Iterator[Compared]:
    """Compare the settings that both runs measured.

    Raises:
        InputError: there is none, or one differs in more than the model and not `anyway`.
    """
    before, after = (
        {(b.benchmark, b.setting): b for b in past.branches(results, [name])}
        for name in (first, second)
    )
    shared = [key for key in before if key in after and _is_comparable(before[key])]
    if not shared:
        raise InputError(
            f"{first} and {second} have no setting of BELIEF in common: "
            f"{_listed(before)} and {_listed(after)}."
        )
    for key in shared:
        _check_relations(before[key], after[key])
        departures = tuple(_departures(before[key], after[key]))
        if departures and not anyway:
            raise InputError(
                f"{first} and {second} differ in more than the model in {key[1]} on {key[0]} "
                f"({'; '.join(departures)}); run one of them again, or compare them --anyway."
            )
        yield _compared(before[key], after[key], given, departures)


def _check_relations(one: PastBranch, other: PastBranch) -> None:
    if not relations(one) & relations(other):
        raise InputError(
            f"{one.run} and {other.run} have no relation in common; compare runs over the same "
            "data."
        )


def relations(branch: PastBranch) -> set[str]:
    """The relations that have answers in a run."""
    return set(branch.artifacts["matched"].shards("answers"))


def _is_comparable(branch: PastBranch) -> bool:
    return METHODS[branch.method].measure.answers == "answers"


def _listed(branches: Mapping[tuple[str, str], PastBranch]) -> str:
    return ", ".join(f"{setting} on {benchmark}" for benchmark, setting in branches)


def _departures(one: PastBranch, other: PastBranch) -> Iterator[str]:
    """What the two differ in, apart from the model: prompts, decoding, matching."""
    for stage in ("facts", "prompts", METHODS[one.method].ask.ability.answers, "matched"):
        if stage in one.artifacts and stage in other.artifacts:
            ours, theirs = (each.artifacts[stage].recipe.fields for each in (one, other))
            for line in differences(ours, theirs):
                if line.partition(":")[0].partition(".")[0] not in _OF_THE_MODEL:
                    yield f"{stage} {line}"


def _compared(
    one: PastBranch, other: PastBranch, given: Comparison, departures: tuple[str, ...]
) -> Compared:
    by: By = "match" if METHODS[one.method].ask.ability == GENERATE else "equality"
    matched = [each.artifacts["matched"] for each in (one, other)]
    paired, changes = _by_relation(matched, given, by)
    comparison = compare(paired, seed=0, n_rounds=given.n_rounds)
    calibration = [each.read_all("calibration") for each in matched]
    if not any(rows.is_empty() for rows in calibration):
        ranked = compare_ranked(*calibration, seed=0, n_rounds=given.n_rounds)
        comparison = pl.concat([comparison, ranked])
    flip_rates = _flip_rate(one), _flip_rate(other)
    noise = max(rate or 0.0 for rate in flip_rates)
    bar = Bar(noise, given.smallest_difference, given.alpha, given.min_facts)
    deciding = corrected(comparison.filter(pl.col("metric").is_in(list(given.decides))))
    names = _names(one, other)
    facts = facts_stage.load(one.artifacts["facts"])
    labels = dict(facts.relations.select("relation_id", "label").iter_rows())
    written = {
        "headline": tables.headline(comparison, names),
        "relations": tables.by_relation(comparison, "acc_at_1", names, labels),
        "moves": tables.moves(state_moves(changes)),
        "gained_and_lost": tables.gained_and_lost(gained_and_lost(paired), comparison, labels),
        "facts": tables.changed_facts(changes, facts.pairs, labels),
        "verdicts": verdicts(deciding, bar),
        "departures": pl.DataFrame({"differs in": departures}, schema={"differs in": pl.String}),
    }
    title = f"{names[1]} against {names[0]}, {one.setting}{' (!)' if departures else ''}"
    figure = tables.differences_figure(
        comparison,
        "acc_at_1",
        title,
        alpha=given.alpha,
        margin=bar.margin,
        relation_labels=labels,
    )
    report = Report(written, {"differences": figure})
    return Compared(
        setting=one.setting,
        benchmark=one.benchmark,
        names=names,
        departures=departures,
        flip_rates=flip_rates,
        report=report,
        verdict=_verdict(deciding, bar, given.min_facts),
    )


def _verdict(deciding: pl.DataFrame, bar: Bar, min_facts: int) -> Verdict:
    """The verdict, where there are facts enough for one at all."""
    n_facts = deciding.select(pl.max("n_pairs").fill_null(0)).item()
    if n_facts >= min_facts:
        return verdict(deciding, bar)
    reason = f"The runs share {n_facts} facts, fewer than comparison.min_facts={min_facts}."
    return Verdict("not enough evidence", reason)


def _names(one: PastBranch, other: PastBranch) -> tuple[str, str]:
    """How the two are called in tables: by model, or by run if the model is the same."""
    if one.model != other.model:
        return one.model, other.model
    return one.run, other.run if other.run != one.run else f"{one.run} (again)"


def _by_relation(
    matched: Sequence[Artifact], given: Comparison, by: By
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The paired terms and the changes of state, a relation at a time."""
    thresholds = Thresholds(given.robust_share, given.min_right_samples, given.confident)
    first, second = matched
    terms, changes = [], []
    for relation in sorted({*first.shards("answers")} & {*second.shards("answers")}):
        answers = [each.read("answers", relation) for each in matched]
        terms.append(paired_terms(*answers, robust_share=given.robust_share, by=by))
        calibration = [each.read("calibration", relation) for each in matched]
        if not any(rows.is_empty() for rows in calibration):
            terms.append(paired_calibration_terms(*calibration))
        before, after = (
            evidence(
                own.join(theirs, on="prompt_id", how="semi"),
                artifact.read("sampled", relation) if artifact.shards("sampled") else None,
                rows if rows.height else None,
            )
            for own, theirs, artifact, rows in zip(
                answers, reversed(answers), matched, calibration, strict=True
            )
        )
        changes.append(state_changes(before, after, thresholds))
    return pl.concat(terms), pl.concat(changes)


def _flip_rate(branch: PastBranch) -> float | None:
    rows = branch.metrics.read_all("metrics").filter(metric="flip_rate")
    found = rows.filter(pl.col("slice").is_null())["value"].drop_nulls()
    return float(found[0]) if len(found) else None
