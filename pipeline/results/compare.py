"""compare: two settings of past runs, paired by what they share: what changed, and which facts."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import Compare, Report, Tables
from factsweep.operators.metrics.belief.knowledge_state import (
    Thresholds,
    state_changes,
    state_moves,
)
from factsweep.operators.metrics.comparing.comparison import (
    compare,
    correct_p_values,
    count_gained_and_lost,
)
from factsweep.operators.metrics.comparing.paired import (
    Shared,
    Unit,
    count_shared,
    in_both,
    unit_between,
)
from factsweep.operators.metrics.comparing.verdict import (
    HIGHER_IS_BETTER,
    Bar,
    Verdict,
    judge_rows,
    judge_runs,
)
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.prompts.expansion import names
from factsweep.operators.tables import comparison as tables
from factsweep.operators.wording import suggestion
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.recipe import Count, NoNumber, Share, Text, build
from factsweep.pipeline.results import past
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.storage.recipe import differences

# What two runs may differ in beside how they were asked: the model itself, its answers' file, and
# the name of the night.
_OF_THE_MODEL = {"model", "answers", "repetition"}
# How facts are asked (of the recipe of prompts): what comparisons are made to see.
_ASKED = ("setting.", "seed:")


@dataclass(frozen=True)
class Pair:
    """One setting of a run, and the one that it is compared with."""

    first: PastBranch
    second: PastBranch
    asked: tuple[str, ...]  # what the prompts differ in
    departures: tuple[str, ...]  # what differs beside that and the model

    @property
    def method(self) -> Compare:
        """How the two are compared."""
        found = self.first.how.compare
        assert found is not None, "a pair can be compared"
        return found

    @property
    def title(self) -> str:
        """The setting, or both."""
        titles = self.first.setting, self.second.setting
        return titles[0] if titles[0] == titles[1] else " and ".join(titles)

    @property
    def names(self) -> tuple[str, str]:
        """How the two are called: by model, setting and seed, as far as they differ, or by run."""
        both = self.first, self.second
        told = [(each.model, each.setting, f"seed {each.seed}") for each in both]
        differing = [each for each in zip(*told, strict=True) if each[0] != each[1]]
        if differing:
            one, other = zip(*differing, strict=True)
            return " ".join(one), " ".join(other)
        runs = self.first.run, self.second.run
        return runs if runs[0] != runs[1] else (runs[0], f"{runs[1]} (again)")

    @property
    def relations(self) -> list[str]:
        """The relations that both have answers of."""
        return sorted({*self.first.relations} & {*self.second.relations})

    @property
    def unit(self) -> Unit:
        """Prompts, as far as both have any and differ in more than the choice of templates."""
        other = [line for line in self.asked if not line.startswith("prompts setting.templates:")]
        alone = bool(self.asked) and not other and self.first.model == self.second.model
        both = self.first, self.second
        ours, theirs = (map(each.matched_answers, self.relations) for each in both)
        return unit_between(zip(ours, theirs, strict=True), templates_alone=alone)


def matching(
    first: tuple[str, Mapping[str, PastBranch]], second: tuple[str, Mapping[str, PastBranch]]
) -> list[tuple[PastBranch, PastBranch]]:
    """The settings of two runs that are compared; each run is given with its settings by title.

    Raises:
        InputError: there is nothing to pair.
    """
    (one, ours), (other, theirs) = first, second
    titles = [title for title in ours if title in theirs]
    if len(ours) == len(theirs) == 1:
        return list(zip(ours.values(), theirs.values(), strict=True))
    if titles:
        return [(ours[title], theirs[title]) for title in titles]
    example = [f"{each}:{next(iter(of))}" for each, of in ((one, ours), (other, theirs))]
    raise InputError(
        f"{one} and {other} have no setting in common: {', '.join(ours)} and "
        f"{', '.join(theirs)}; name one of each: {' '.join(map(shlex.quote, example))}."
    )


def setting_of(text: str, results: str) -> Mapping[str, PastBranch]:
    """Those settings of a run, by title, that RUN or RUN:SETTING stands for.

    Raises:
        InputError: the run has no such setting.
    """
    run, _, setting = text.partition(":")
    found = past.by_title(results, run)
    if not setting:
        return found
    if setting not in found:
        meant = suggestion(setting, found)
        raise InputError(f"{run} has no setting {setting}; it has {', '.join(found)}.{meant}")
    return {setting: found[setting]}


def paired(one: PastBranch, other: PastBranch, *, anyway: bool) -> Pair:
    """Two settings, and what they differ in.

    Raises:
        InputError: runs of their benchmark cannot be compared, or the two differ in more than the
            model and how they were asked, and not `anyway`.
    """
    for branch in (one, other):
        if branch.how.compare is None:
            raise InputError(
                f"{branch.run} measured {branch.benchmark}; its runs cannot be compared."
            )
    lines = list(_differences(one, other))
    asked = [line for line in lines if line.removeprefix("prompts ").startswith(_ASKED)]
    departures = [line for line in lines if line not in asked]
    if departures and not anyway:
        raise InputError(
            f"{one.run} ({one.setting}) and {other.run} ({other.setting}) differ in more than "
            f"the model and how they were asked ({'; '.join(departures)}); run one of "
            "them again, or compare them --anyway."
        )
    return Pair(one, other, tuple(asked), tuple(departures))


def _differences(one: PastBranch, other: PastBranch) -> Iterator[str]:
    """What the two differ in, apart from the model: facts, prompts, decoding, matching."""
    stages = ["facts", "prompts"]
    if one.method == other.method:
        stages += [one.how.ask.ability.answers, "matched"]
    for stage in stages:
        ours, theirs = (each.artifacts[stage].recipe.fields for each in (one, other))
        for line in differences(ours, theirs):
            # The seed of the answers is that of the prompts.
            if line.partition(":")[0].partition(".")[0] not in _OF_THE_MODEL and (
                stage == "prompts" or not line.startswith("seed:")
            ):
                yield f"{stage} {line}"


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
    decides: Annotated[tuple[Text, ...] | None, _READS]


@dataclass(frozen=True)
class Compared:
    """Two settings: what is written, and the verdict; `paired` says what was and what was not."""

    pair: Pair
    paired: str
    report: Report
    verdict: Verdict
    flip_rates: tuple[float | None, float | None] = (None, None)

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
    for metric in found.decides or ():
        if metric not in HIGHER_IS_BETTER:
            known = ", ".join(HIGHER_IS_BETTER)
            raise InputError(f"comparison.decides names {metric}; a verdict is about {known}.")
    return found


def compared(
    first: str,
    second: str,
    results: str,
    given: Comparison,
    *,
    anyway: bool,
    unit: Unit | None = None,
) -> Iterator[Compared]:
    """Compare two runs, named as RUN or RUN:SETTING; `unit`: what is paired (null: see Pair).

    Raises:
        InputError: there is no such run or setting, nothing to pair, no relation in common, or two
            differ in more than the model and how they were asked, and not `anyway`.
    """
    ours, theirs = (setting_of(name, results) for name in (first, second))
    for one, other in matching((first, ours), (second, theirs)):
        pair = paired(one, other, anyway=anyway)
        if not pair.relations:
            raise InputError(
                f"{one.run} and {other.run} have no relation in common; compare runs over the same "
                "data."
            )
        yield _compared(pair, unit or pair.unit, given)


@single_threaded_blas()
def _compared(pair: Pair, unit: Unit, given: Comparison) -> Compared:
    paired, changes, found = _by_relation(pair, unit, given)
    summed = compare(paired, seed=0, n_rounds=given.n_rounds)
    comparison, table = summed, pair.first.how.measure.calibration
    if pair.method.ranked is not None and table is not None:  # of what is no sum over pairs
        before, after = (b.artifacts["matched"].read_all(table) for b in (pair.first, pair.second))
        comparison = pl.concat([summed, pair.method.ranked(before, after, given.n_rounds)])
    flip_rates = flip_rate(pair.first), flip_rate(pair.second)
    noise = max(rate or 0.0 for rate in flip_rates)
    bar = Bar(noise, given.smallest_difference, given.alpha, given.min_facts)
    main = pair.first.how.measure.main_metric
    decides = (main,) if given.decides is None else given.decides
    deciding = correct_p_values(comparison.filter(pl.col("metric").is_in(list(decides))))
    facts = pair.first.facts
    labels = facts.labels
    one, other = (f"{name} (!)" if pair.departures else name for name in pair.names)
    sentence = found.sentence(unit)
    counts = {name.replace("_", " "): count for name, count in found._asdict().items()}
    written = {
        "headline": tables.headline(comparison, (one, other)),
        "relations": tables.by_relation(comparison, main, (one, other), labels),
        "moves": tables.moves(state_moves(changes)),
        "gained_and_lost": tables.gained_and_lost(
            count_gained_and_lost(paired), comparison, labels
        ),
        "facts": tables.changed_facts(changes, facts.pairs, labels),
        "verdicts": judge_rows(deciding, bar),
        "paired": pl.DataFrame({"paired": [sentence], "by": [unit], **counts}),
        "asked": pl.Series("differs in", pair.asked, pl.String).to_frame(),
        "departures": pl.Series("differs in", pair.departures, pl.String).to_frame(),
    }
    title, limits = f"{other} against {one}", {"alpha": given.alpha, "margin": bar.margin}
    figure = tables.differences_figure(comparison, main, title, **limits, relation_labels=labels)
    raw = {"comparison": _told(comparison, pair, unit), "changes": changes}
    report = Report(written, {"differences": figure}, raw=raw)
    n_facts = deciding.select(pl.max("n_pairs").fill_null(0)).item()
    reason = f"The runs share {n_facts} facts, fewer than comparison.min_facts={given.min_facts}."
    few = Verdict("not enough evidence", reason)
    found_verdict = judge_runs(deciding, bar) if n_facts >= given.min_facts else few
    return Compared(pair, sentence, report, found_verdict, flip_rates)


def _told(comparison: pl.DataFrame, pair: Pair, unit: Unit) -> pl.DataFrame:
    """The comparison with what is compared, how it was paired, and what differs beside."""
    who = {
        f"{place}_{name}": value
        for place, branch in (("first", pair.first), ("second", pair.second))
        for name, value in (("run", branch.run), ("model", branch.model), ("asked", branch.setting))
    }
    lines = {"asked": "; ".join(pair.asked), "departures": "; ".join(pair.departures)}
    columns = {"benchmark": pair.first.benchmark, **who, "paired_by": unit, **lines}
    return comparison.select(
        *(pl.lit(value).alias(name) for name, value in columns.items()), *comparison.columns
    )


def _by_relation(
    pair: Pair, unit: Unit, given: Comparison
) -> tuple[pl.DataFrame, pl.DataFrame, Shared]:
    """The paired terms, the changes of state and what is shared, a relation at a time."""
    thresholds = Thresholds(given.robust_share, given.min_right_samples, given.confident)
    method, answers = pair.method, pair.first.how.measure.answers
    terms, changes, found = [], [], []
    for relation in pair.relations:
        first, second = _matched(pair, relation)
        found.append(count_shared(first[answers], second[answers]))
        terms.append(method.terms(first, second, unit, given.robust_share))
        if unit == "prompt":
            both = in_both(first[answers], second[answers], unit)
            first, second = ({**e, answers: b} for e, b in zip((first, second), both, strict=True))
        before, after = (method.evidence(each) for each in (first, second))
        changes.append(state_changes(before, after, thresholds))
    total = Shared.total([*found, *_alone(pair)])
    if not (total.prompts if unit == "prompt" else total.facts):
        raise InputError(
            f"{pair.first.run} and {pair.second.run} have no {unit} in common; compare runs over "
            "the same facts."
        )
    return pl.concat(terms), pl.concat(changes), total


def _alone(pair: Pair) -> Iterator[Shared]:
    """What only one of the runs has, of the relations that only it was asked."""
    ours, theirs = (
        map(one.matched_answers, sorted({*one.relations} - {*pair.relations}))
        for one in (pair.first, pair.second)
    )
    yield from (count_shared(each, each.clear()) for each in ours)
    yield from (count_shared(each.clear(), each) for each in theirs)


def _matched(pair: Pair, relation: str) -> tuple[Tables, Tables]:
    first, second = (each.matched(relation) for each in (pair.first, pair.second))
    folders = {each.artifacts["facts"].folder for each in (pair.first, pair.second)}
    return first, second if len(folders) == 1 else _told_apart(pair, first, second)


def _told_apart(pair: Pair, first: Tables, second: Tables) -> Tables:
    """The second run's tables, where prompts in other words than the first's have ids of their own.

    Ids count templates and names; other facts may have others in the same places.
    """
    said = []
    for branch, matched in ((pair.first, first), (pair.second, second)):
        facts = branch.facts
        rows = matched[branch.how.measure.answers]
        templates = facts.templates.select("template_id", "text")
        words = rows.select("prompt_id", "pair_id", "template_id", "subject_index")
        words = words.with_columns(pl.exclude("subject_index").cast(pl.String))
        words = words.join(templates, on="template_id").join(
            names(facts.pairs), on=["pair_id", "subject_index"]
        )
        said.append(words.select("prompt_id", "text", "name"))
    other = said[1].join(said[0], on=said[0].columns, how="anti")["prompt_id"].implode()
    own = pl.col("prompt_id").cast(pl.String)
    renamed = pl.when(own.is_in(other)).then(own + " in other words").otherwise(own)
    return {
        table: rows.with_columns(prompt_id=renamed) if "prompt_id" in rows.columns else rows
        for table, rows in second.items()
    }


def flip_rate(branch: PastBranch) -> float | None:
    """The flip rate of a setting's canary; null where it has none."""
    rows = branch.metrics.read_all("metrics").filter(metric="flip_rate")
    found = rows.filter(pl.col("slice").is_null())["value"].drop_nulls()
    return float(found[0]) if len(found) else None
