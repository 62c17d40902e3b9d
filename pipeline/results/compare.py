"""compare: two settings of past runs, paired by their common prompts or facts."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import Compare, Report, Tables
from factsweep.operators.metrics.belief.knowledge_state import (
    Thresholds,
    state_changes,
    state_moves,
)
from factsweep.operators.metrics.comparing.comparison import (
    adjust_p_values,
    compare,
    count_gained_and_lost,
)
from factsweep.operators.metrics.comparing.paired import (
    SharedCounts,
    Unit,
    count_shared,
    in_both,
    unit_between,
)
from factsweep.operators.metrics.comparing.verdict import (
    HIGHER_IS_BETTER,
    SIDES,
    Verdict,
    VerdictThresholds,
    judge_rows,
    judge_runs,
)
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.prompts.expansion import names
from factsweep.operators.tables import comparison as tables
from factsweep.operators.wording import suggestion
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.recipe import Count, NoNumber, Share, Text, build
from factsweep.pipeline.results import past_runs
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.storage.artifact import differences

# Fields that may differ: the model itself, its answers' file, and the name of the night.
_MODEL_FIELDS = {"model", "answers", "source", "repetition"}
# Fields that are known of an engine, and not of a server; and the prompts that are sampled, which
# servers are spared: confidences are compared where both runs have any.
_KNOWN = ("software.", "determinism:", "environment", "n_prompts:")
_ANSWERED_BY = {
    "engine": "by an engine of this project",
    "server": "by a server, whose software and precision are unknown",
}
# Fields of the recipe of prompts that say how facts are asked.
_ASKED = ("setting.", "seed:")


@dataclass(frozen=True)
class Pair:
    """Two settings to compare."""

    first: PastBranch
    second: PastBranch
    prompt_differences: tuple[str, ...]  # of the prompts, and of the kind of engine
    departures: tuple[str, ...]  # other differences, except those of the model

    @property
    def method(self) -> Compare:
        """The functions of the benchmark's method that compare."""
        compare = self.first.benchmark_method.compare
        assert compare is not None, "a pair can be compared"
        return compare

    @property
    def title(self) -> str:
        """The setting, or both."""
        titles = self.first.setting, self.second.setting
        return titles[0] if titles[0] == titles[1] else " and ".join(titles)

    @property
    def names(self) -> tuple[str, str]:
        """Names for the two: model, setting and seed, as far as they differ, or the run."""
        fields = [(b.model, b.setting, f"seed {b.seed}") for b in (self.first, self.second)]
        differing = [pair for pair in zip(*fields, strict=True) if pair[0] != pair[1]]
        if differing:
            first_names, second_names = zip(*differing, strict=True)
            return " ".join(first_names), " ".join(second_names)
        runs = self.first.run, self.second.run
        return runs if runs[0] != runs[1] else (runs[0], f"{runs[1]} (again)")

    @property
    def relations(self) -> list[str]:
        """The relations with answers in both."""
        return sorted({*self.first.relations} & {*self.second.relations})

    @property
    def unit(self) -> Unit:
        """Prompts, as far as both have any and differ in more than the choice of templates."""
        same_model = self.first.model == self.second.model
        is_choice = all(
            line.startswith("prompts setting.templates:") for line in self.prompt_differences
        )
        tables = (map(b.matched_answers, self.relations) for b in (self.first, self.second))
        is_template_choice = bool(self.prompt_differences) and is_choice and same_model
        return unit_between(zip(*tables, strict=True), templates_alone=is_template_choice)


def matching(
    first: tuple[str, Mapping[str, PastBranch]], second: tuple[str, Mapping[str, PastBranch]]
) -> list[tuple[PastBranch, PastBranch]]:
    """The settings of two runs that are compared; each run is given with its settings by title.

    Raises:
        InputError: there is nothing to pair.
    """
    (first_run, first_settings), (second_run, second_settings) = first, second
    if len(first_settings) == len(second_settings) == 1:
        return list(zip(first_settings.values(), second_settings.values(), strict=True))
    if titles := [title for title in first_settings if title in second_settings]:
        return [(first_settings[title], second_settings[title]) for title in titles]
    example = [f"{run}:{next(iter(settings))}" for run, settings in (first, second)]
    raise InputError(
        f"{first_run} and {second_run} have no setting in common: {', '.join(first_settings)} and "
        f"{', '.join(second_settings)}; name one of each: {' '.join(map(shlex.quote, example))}."
    )


def setting_of(text: str, results: str) -> Mapping[str, PastBranch]:
    """Those settings of a run, by title, that RUN or RUN:SETTING stands for.

    Raises:
        InputError: the run has no such setting.
    """
    run, _, setting = text.partition(":")
    by_title = past_runs.by_title(results, run)
    if not setting:
        return by_title
    if setting not in by_title:
        hint = suggestion(setting, by_title)
        raise InputError(f"{run} has no setting {setting}; it has {', '.join(by_title)}.{hint}")
    return {setting: by_title[setting]}


def pair_branches(first: PastBranch, second: PastBranch, *, anyway: bool) -> Pair:
    """Two settings and their differences.

    Raises:
        InputError: runs of their benchmark cannot be compared, or the two differ in more than the
            model and how they were asked, and not `anyway`.
    """
    for branch in (first, second):
        if branch.benchmark_method.compare is None:
            raise InputError(
                f"{branch.run} measured {branch.benchmark}; its runs cannot be compared."
            )
    lines = list(_recipe_differences(first, second))
    asked_lines = [line for line in lines if line.removeprefix("prompts ").startswith(_ASKED)]
    departures = [line for line in lines if line not in asked_lines]
    if {first.answered_by, second.answered_by} == {"engine", "server"}:
        departures = [line for line in departures if not line.partition(" ")[2].startswith(_KNOWN)]
        answerers = (_ANSWERED_BY[branch.answered_by] for branch in (first, second))
        asked_lines.append(f"answered {' → '.join(answerers)}")
    if departures and not anyway:
        raise InputError(
            f"{first.run} ({first.setting}) and {second.run} ({second.setting}) differ in more "
            f"than the model and how they were asked ({'; '.join(departures)}); run one of them "
            "again, or compare them --anyway."
        )
    return Pair(first, second, tuple(asked_lines), tuple(departures))


def _recipe_differences(first: PastBranch, second: PastBranch) -> Iterator[str]:
    stages = ["facts", "prompts"]
    if first.method == second.method:
        stages += [first.benchmark_method.ask.ability.answers, "matched"]
    for stage in stages:
        first_fields, second_fields = (
            branch.artifacts[stage].recipe.fields for branch in (first, second)
        )
        for line in differences(first_fields, second_fields):
            # The seed of the answers is that of the prompts.
            if line.partition(":")[0].partition(".")[0] not in _MODEL_FIELDS and (
                stage == "prompts" or not line.startswith("seed:")
            ):
                yield f"{stage} {line}"


_READS = NoNumber("compare reads published results, and publishes nothing")


@dataclass(frozen=True)
class Comparison:
    """The thresholds of a change (conf/comparison/)."""

    robust_share: Annotated[Share, _READS]
    min_right_samples: Annotated[Count, _READS]
    confident: Annotated[Share, _READS]
    smallest_difference: Annotated[float, Field(ge=0, le=1_000_000), _READS]
    alpha: Annotated[float, Field(gt=0, lt=1), _READS]
    min_facts: Annotated[Count, _READS]
    n_rounds: Annotated[int, Field(ge=1, le=1_000_000), _READS]
    decides: Annotated[tuple[Text, ...] | None, _READS]


@dataclass(frozen=True)
class ComparedRuns:
    """The tables of a comparison and the verdict; `paired` counts the paired prompts and facts."""

    pair: Pair
    paired: str
    report: Report
    verdict: Verdict
    flip_rates: tuple[float | None, float | None] = (None, None)

    @property
    def conclusion(self) -> str:
        """The verdict in words, with its reason."""
        (outcome, reason), (first, second) = self.verdict, self.pair.names
        verdict = f"{second} is {outcome} than {first}" if outcome in SIDES else outcome
        return f"{verdict}: {reason}"

    @property
    def p_note(self) -> str:
        """Which p-values of the table `headline` are adjusted."""
        measure = self.pair.first.benchmark_method.measure
        main = headings(measure.metrics)[measure.main_metric]
        return f"p of {main}, the main metric, is not adjusted; p (Holm) adjusts the further ones."

    @property
    def lost_facts(self) -> tuple[str, ...]:
        """The facts that only the first run knows, the largest change first."""
        rows = self.report.tables["facts"].filter(change="lost")
        return tuple(f"{s} ({r})" for s, r in rows.select("subject", "relation").iter_rows())

    @property
    def n_gained(self) -> int:
        """How many facts only the second run knows."""
        return self.report.tables["facts"].filter(change="gained").height


def settings(overrides: Mapping[str, Any]) -> Comparison:
    """The default configuration with some fields changed.

    Raises:
        InputError: an unknown field, or a value of the wrong type or out of its range.
    """
    content = folders.content(folders.files("comparison")["default"])
    fields = {**content, **overrides} if isinstance(content, dict) else content
    comparison = build(Comparison, fields, "comparison")
    for metric in comparison.decides or ():
        if metric not in HIGHER_IS_BETTER:
            metrics = ", ".join(HIGHER_IS_BETTER)
            raise InputError(f"comparison.decides names {metric}; a verdict is about {metrics}.")
    return comparison


def compare_runs(
    first: str,
    second: str,
    results: str,
    options: Comparison,
    *,
    anyway: bool,
    unit: Unit | None = None,
    is_baseline: bool = False,
) -> Iterator[ComparedRuns]:
    """Compare two runs, named as RUN or RUN:SETTING; `unit` defaults to that of Pair.

    The first `is_baseline` if the verdict is to say whether the second is worse.

    Raises:
        InputError: there is no such run or setting, nothing to pair, no relation in common, or two
            differ in more than the model and how they were asked, and not `anyway`.
    """
    settings = (setting_of(run, results) for run in (first, second))
    for first_branch, second_branch in matching(*zip((first, second), settings, strict=True)):
        pair = pair_branches(first_branch, second_branch, anyway=anyway)
        if not pair.relations:
            raise InputError(
                f"{first_branch.run} and {second_branch.run} have no relation in common; compare "
                "runs over the same data."
            )
        yield _compare(pair, unit or pair.unit, options, is_baseline=is_baseline)


def compare_main_metric(first: PastBranch, second: PastBranch, n_rounds: int) -> dict[str, Any]:
    """The main metric over all in two settings (columns: COMPARISON), as in `compare_runs`."""
    pair = pair_branches(first, second, anyway=True)
    unit, main_metric = pair.unit, first.benchmark_method.measure.main_metric
    terms = (pair.method.terms(*tables, unit, 1.0) for tables in _tables_by_relation(pair))
    rows = pl.concat(rows.filter(metric=main_metric) for rows in terms)
    return compare(rows, seed=0, n_rounds=n_rounds).row(0, named=True)


@single_threaded_blas()
def _compare(pair: Pair, unit: Unit, options: Comparison, *, is_baseline: bool) -> ComparedRuns:
    facts = pair.first.facts
    paired, changes, counts = _compare_relations(pair, facts, unit, options)
    summed = compare(paired, seed=0, n_rounds=options.n_rounds)
    comparison, names_of_tables = summed, pair.first.benchmark_method.measure.confidences
    if pair.method.ranked is not None and names_of_tables:  # metrics that are no sums over pairs
        first_tables, second_tables = (
            {name: b.artifacts["matched"].read_all(name) for name in names_of_tables}
            for b in (pair.first, pair.second)
        )
        ranked = pair.method.ranked(first_tables, second_tables, options.n_rounds)
        comparison = pl.concat([summed, ranked])
    flip_rates = flip_rate(pair.first), flip_rate(pair.second)
    noise = max(rate or 0.0 for rate in flip_rates)
    limits = options.smallest_difference, options.alpha, options.min_facts
    bar = VerdictThresholds(noise, *limits, is_baseline=is_baseline)
    main = pair.first.benchmark_method.measure.main_metric
    decides = (main,) if options.decides is None else options.decides
    comparison = adjust_p_values(comparison, main, decides)
    deciding = comparison.filter(pl.col("metric").is_in(list(decides)))
    labels = facts.labels
    names = [f"{name} (!)" if pair.departures else name for name in pair.names]
    sentence = counts.sentence(unit)
    columns = {name.replace("_", " "): count for name, count in counts._asdict().items()}
    report_tables = {
        "headline": tables.headline(comparison, (names[0], names[1])),
        "relations": tables.by_relation(comparison, main, (names[0], names[1]), labels),
        "moves": tables.moves_table(state_moves(changes)),
        "gained_and_lost": tables.gained_and_lost(
            count_gained_and_lost(paired), comparison, labels
        ),
        "facts": tables.changed_facts(changes, facts.pairs, labels),
        "verdicts": judge_rows(deciding, bar),
        "paired": pl.DataFrame({"paired": [sentence], "by": [unit], **columns}),
        "asked": pl.Series("differs in", pair.prompt_differences, pl.String).to_frame(),
        "departures": pl.Series("differs in", pair.departures, pl.String).to_frame(),
    }
    title = f"{names[1]} against {names[0]}"
    figure = tables.differences_figure(
        comparison, main, title, alpha=bar.alpha, margin=bar.margin, relation_labels=labels
    )
    raw = {"comparison": _add_names(comparison, pair, unit), "changes": changes}
    report = Report(report_tables, {"differences": figure}, raw=raw)
    n_facts = deciding.select(pl.max("n_pairs").fill_null(0)).item()
    reason = f"The runs share {n_facts} facts, fewer than comparison.min_facts={options.min_facts}."
    too_few = Verdict("not enough evidence", reason)
    outcome = judge_runs(deciding, bar) if n_facts >= options.min_facts else too_few
    return ComparedRuns(pair, sentence, report, outcome, flip_rates)


def _add_names(comparison: pl.DataFrame, pair: Pair, unit: Unit) -> pl.DataFrame:
    names = {
        f"{side}_{name}": value
        for side, branch in (("first", pair.first), ("second", pair.second))
        for name, value in (("run", branch.run), ("model", branch.model), ("asked", branch.setting))
    }
    lines = {"asked": "; ".join(pair.prompt_differences), "departures": "; ".join(pair.departures)}
    columns = {"benchmark": pair.first.benchmark, **names, "paired_by": unit, **lines}
    return comparison.select(
        *(pl.lit(value).alias(name) for name, value in columns.items()), *comparison.columns
    )


def _compare_relations(
    pair: Pair, facts: Facts, unit: Unit, options: Comparison
) -> tuple[pl.DataFrame, pl.DataFrame, SharedCounts]:
    """The paired terms, the changes of state and the counts, one relation at a time."""
    thresholds = Thresholds(options.robust_share, options.min_right_samples, options.confident)
    method, answers = pair.method, pair.first.benchmark_method.measure.answers
    branches = pair.first, pair.second
    terms, changes, counts = [], [], []
    for first, second in _tables_by_relation(pair):
        counts.append(count_shared(first[answers], second[answers]))
        terms.append(method.terms(first, second, unit, options.robust_share))
        rows: tuple[pl.DataFrame, pl.DataFrame] = first[answers], second[answers]
        if unit == "prompt":
            rows = in_both(*rows, unit)
        first_evidence = pair.first.evidence({**first, answers: rows[0]}, facts)
        second_evidence = pair.second.evidence({**second, answers: rows[1]}, facts)
        changes.append(state_changes(first_evidence, second_evidence, thresholds))
    for branch in branches:
        for relation in sorted({*branch.relations} - {*pair.relations}):
            table = branch.matched_answers(relation)
            sides = (table, table.clear()) if branch is pair.first else (table.clear(), table)
            counts.append(count_shared(*sides))
    total = SharedCounts.total(counts)
    if not (total.prompts if unit == "prompt" else total.facts):
        raise InputError(
            f"{pair.first.run} and {pair.second.run} have no {unit} in common; compare runs over "
            "the same facts."
        )
    return pl.concat(terms), pl.concat(changes), total


def _tables_by_relation(pair: Pair) -> Iterator[tuple[Tables, Tables]]:
    """The matched tables of both runs, one common relation at a time."""
    branches = pair.first, pair.second
    has_other_facts = len({branch.artifacts["facts"].folder for branch in branches}) > 1
    facts = [branch.facts for branch in branches] if has_other_facts else []
    for relation in pair.relations:
        first: Tables = pair.first.read_matched(relation)
        second: Tables = pair.second.read_matched(relation)
        if facts:
            second = _rename_other_prompts(pair, facts, first, second)
        yield first, second


def _rename_other_prompts(
    pair: Pair, facts_of_both: Sequence[Facts], first: Tables, second: Tables
) -> Tables:
    """The second run's tables, with new ids for prompts whose words differ from the first's.

    Ids count templates and names, which are others in other facts.
    """
    prompts = []
    sides = zip((pair.first, pair.second), facts_of_both, (first, second), strict=True)
    for branch, facts, matched in sides:
        rows = matched[branch.benchmark_method.measure.answers]
        words = rows.select("prompt_id", "pair_id", "template_id", "subject_index")
        words = words.with_columns(pl.exclude("subject_index").cast(pl.String))
        words = words.join(facts.templates.select("template_id", "text"), on="template_id")
        words = words.join(names(facts.pairs), on=["pair_id", "subject_index"])
        prompts.append(words.select("prompt_id", "text", "name"))
    changed = prompts[1].join(prompts[0], on=prompts[0].columns, how="anti")["prompt_id"].implode()
    prompt_id = pl.col("prompt_id").cast(pl.String)
    renamed = pl.when(prompt_id.is_in(changed)).then(prompt_id + " in other words")
    return {
        table: rows.with_columns(prompt_id=renamed.otherwise(prompt_id))
        if "prompt_id" in rows.columns
        else rows
        for table, rows in second.items()
    }


def flip_rate(branch: PastBranch) -> float | None:
    """The flip rate of a setting's canary, or None without one."""
    rows = branch.metrics.read_all("metrics").filter(metric="flip_rate")
    rates = rows.filter(pl.col("slice").is_null())["value"].drop_nulls()
    return float(rates[0]) if len(rates) else None
