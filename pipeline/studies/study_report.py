"""The results of a study: its curve, the lives of its facts, and the papers' tables of all runs.

<study>/<label>/    the results of each run
       /report/     the report of all runs, with the curve and the lives of facts
"""

from collections.abc import Iterable, Mapping
from itertools import starmap
from typing import NamedTuple

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.estimates.intervals import add_bands
from factsweep.operators.matching.lemmas import key
from factsweep.operators.matching.normalise import Normaliser
from factsweep.operators.methods.method import Report, join_reports
from factsweep.operators.metrics.comparing.across_languages import (
    compare_languages,
    facts_known_in_one_language,
)
from factsweep.operators.metrics.comparing.comparison import holm
from factsweep.operators.metrics.comparing.curve import (
    classify_lives,
    compare_along,
    count_lives,
    threshold_variant,
)
from factsweep.operators.metrics.comparing.paired import FACT
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.metrics.shared.rows import deciles, headings
from factsweep.operators.schemas import empty
from factsweep.operators.tables import comparison as tables
from factsweep.operators.tables.belief import knowledge_sharing_figure
from factsweep.operators.tables.comparison import POINTS, across_table, alone_table
from factsweep.operators.tables.shared.pivot import join_names
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.results import estimates, past_runs
from factsweep.pipeline.results.compare import compare_main_metric
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.results.report import SettingGroup, report
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import write_report
from factsweep.pipeline.studies.study import LANGUAGE, Member, Study

_ROUNDS = 1000
_VALUE = ("value", "ci_low", "ci_high")
Branches = Mapping[str, PastBranch]  # by label, along the axis


class Findings(NamedTuple):
    """The tables for a terminal, and the lines of the report."""

    tables: tuple[pl.DataFrame, ...]
    lines: tuple[str, ...]


@single_threaded_blas()
def write(study: Study) -> Findings:
    """Write the report of a study's runs; runs without results are left out.

    Raises:
        InputError: no run has results, or one is incomplete.
    """
    members = [member for member in study.members if member.is_answered]
    out = below(study.results, f"{study.name}/report")
    points = [_read_estimated_points(member) for member in members if not member.is_complete]
    names = [member.run.name for member in members]
    full = [member.run.name for member in members if member.is_complete]
    by_language = Report({})
    if study.axis == LANGUAGE and full:
        by_language = languages(past_runs.branches(study.results, full), study.plan.known_share)

    def more(part: SettingGroup) -> Report:
        report = _report_group(study, part)
        points.append(report.raw["along"])
        return join_reports(report, by_language)

    lines = tuple(report(names, study.results, out, more=more))
    rows = _sort_points(study, pl.concat(points))
    if rows["estimated"].is_not_null().any():
        # Ranks of the full runs alone would mislead.
        unranked = {name: pl.lit(None, POINTS[name]) for name in ("rank_low", "rank_high")}
        rows = add_bands(rows.with_columns(**unranked)).select(POINTS.names())
    combined = join_reports(_report_along(study, rows), by_language)
    write_report(Store(out), combined)
    tables = [table for name, table in combined.tables.items() if name in combined.raw]
    return Findings(tuple(tables), lines)


def _report_along(study: Study, points: pl.DataFrame) -> Report:
    """The table and the figure of points along the axis."""
    measure = study.members[0].run.method.measure
    metric = headings(measure.metrics).get(measure.main_metric, measure.main_metric)
    return Report(
        {"along": tables.along_table(points, study.axis, metric, study.reference)},
        {"along": tables.along_figure(points, study.axis, metric)},
        {"along": f"{metric} along {study.axis}"},
        {"along": points},
    )


def _sort_points(study: Study, points: pl.DataFrame) -> pl.DataFrame:
    """The points by setting, along the axis."""
    place_by_label = {member.label: member.at for member in study.members}
    place = pl.col("label").replace_strict(place_by_label, return_dtype=pl.Float64)
    settings = pl.Enum(points["setting"].unique(maintain_order=True))
    order = pl.col("setting").cast(settings), "at"
    return points.with_columns(at=place).sort(*order, maintain_order=True)


def _report_group(study: Study, part: SettingGroup) -> Report:
    """The curve and lives of runs over the same facts by setting; of several seeds, the first."""
    labels = {member.run.name: member.label for member in study.members}
    points, lives_reports = [], list[Report]()
    for setting in dict.fromkeys(branch.setting for branch in part.branches):
        setting_branches = [branch for branch in part.branches if branch.setting == setting]
        first = {labels[branch.run]: branch for branch in reversed(setting_branches)}
        branches = {label: first[label] for label in study.labels if label in first}
        evidence = _evidence(branches)
        points.append(_points(study, setting, branches, evidence))
        lives_reports.append(_lives(study, setting, branches, evidence))
    return join_reports(
        _report_along(study, _sort_points(study, pl.concat(points))), *lives_reports
    )


class _Evidence(NamedTuple):
    """The facts of each run: the columns of `along`, and those of `lives`."""

    terms: pl.DataFrame
    shares: pl.DataFrame


def _evidence(branches: Branches) -> _Evidence | None:
    """The facts of comparable runs; None for one run alone."""
    method = next(iter(branches.values())).benchmark_method
    compare, main = method.compare, method.measure.main_metric
    if compare is None or len(branches) < 2:
        return None
    terms, shares = [], []
    facts = next(iter(branches.values())).facts
    for name, branch in branches.items():
        label = pl.lit(name).alias("label")
        for relation in branch.relations:
            matched = branch.read_matched(relation)
            rows = compare.terms(matched, matched, "fact", 1.0).filter(metric=main)
            terms.append(
                rows.select(label, *FACT, pl.col("first").alias("numerator"), "denominator")
            )
            shares.append(branch.evidence(matched, facts).select(label, *FACT, "share"))
    return _Evidence(pl.concat(terms), pl.concat(shares))


def _points(
    study: Study, setting: str, branches: Branches, evidence: _Evidence | None
) -> pl.DataFrame:
    """One row per run (columns: POINTS): its metric, and its comparison with the other runs."""
    method = next(iter(branches.values())).benchmark_method
    main, labels = method.measure.main_metric, list(branches)
    overall = pl.col("slice").is_null()
    rows = [
        (label, *rows.filter(overall, metric=main).select(_VALUE).row(0))
        for label, rows in ((n, b.metrics.read_all("metrics")) for n, b in branches.items())
    ]
    points = pl.DataFrame(rows, {n: POINTS[n] for n in ("label", *_VALUE)}, orient="row")
    if evidence is not None:
        curve = compare_along(evidence.terms, labels, seed=0, n_rounds=_ROUNDS)
        reference = study.reference if study.reference in labels else labels[0]
        for table in (curve.drop(_VALUE), _differences(branches, reference)):
            points = points.join(table, on="label", how="left", maintain_order="left")
    return _to_points(points.with_columns(setting=pl.lit(setting)))


def _differences(branches: Branches, reference: str) -> pl.DataFrame:
    """The difference of each run from the reference, as `compare` computes it."""
    rows = []
    for label, branch in branches.items():
        row = compare_main_metric(branches[reference], branch, _ROUNDS)
        low, high, p = row["ci_low"], row["ci_high"], row["p"] if label != reference else None
        rows.append((label, row["difference"], low, high, p))
    columns = ["label", "difference", "difference_low", "difference_high", "p"]
    return pl.DataFrame(rows, columns, orient="row").with_columns(p_holm=holm(pl.col("p")))


def _to_points(points: pl.DataFrame) -> pl.DataFrame:
    """The columns POINTS; a missing one is null."""
    rows = pl.concat([POINTS.to_frame(), points], how="diagonal_relaxed")
    return rows.select(POINTS.names()).cast(POINTS)


def _lives(study: Study, setting: str, branches: Branches, evidence: _Evidence | None) -> Report:
    """The life of facts along the axis, also by popularity; empty without evidence."""
    if evidence is None:
        return Report({})
    labels, known_share = list(branches), study.plan.known_share
    rows = classify_lives(evidence.shares, labels, known_share=known_share)
    facts = next(iter(branches.values())).facts
    subjects = facts.pairs.select(
        pl.col("pair_id").cast(pl.String), subject=pl.col("subjects").list.first()
    )
    rows = rows.join(subjects, on="pair_id", how="left", maintain_order="left")
    variant = threshold_variant(known_share)
    setting = " ".join(filter(None, (setting, variant)))
    suffix = setting.replace(" ", "-")
    name, facts_name = f"lives-{suffix}", f"lives-of-facts-{suffix}"
    definition = (
        f"known is right under more than {100 * known_share:g} % of the prompts, twice in a row"
    )
    by_relation = Report(
        {
            name: tables.lives_table(count_lives(rows), "relation", facts.labels),
            facts_name: tables.facts_table(rows, facts.labels),
        },
        {name: tables.lives_figure(rows, labels)},
        {
            name: f"The life of facts, {setting}: {definition}",
            facts_name: f"Each fact along {study.axis}, {setting}",
        },
        {name: rows.with_columns(variant=pl.lit(variant, pl.String))},
    )
    return join_reports(by_relation, _lives_by_popularity(setting, rows, facts))


def _lives_by_popularity(setting: str, rows: pl.DataFrame, facts: Facts) -> Report:
    """The life of facts by tenths of popularity; empty if the data set has none."""
    details = facts.extra_tables.get("details", empty("details")).unique("pair_id", keep="first")
    tenths = deciles(details.join(rows, on="pair_id", how="semi"))
    if tenths.is_empty():
        return Report({})
    counts = count_lives(rows.join(tenths, on="pair_id"), "decile")
    name = f"lives-by-popularity-{setting.replace(' ', '-')}"
    title = f"The life of facts by their popularity, 0 the least popular tenth, {setting}"
    return Report({name: tables.lives_table(counts, "popularity", {})}, titles={name: title})


def _read_estimated_points(member: Member) -> pl.DataFrame:
    """The points of a run that asked a part of its prompts."""
    main = member.run.method.measure.main_metric
    rows = estimates.read(member.run.results, member.run.name).estimates.filter(metric=main)
    return _to_points(
        rows.select(
            join_names("setting", "variant").alias("setting"),
            pl.lit(member.label).alias("label"),
            "value",
            pl.col("full_low").alias("ci_low"),
            pl.col("full_high").alias("ci_high"),
            pl.col("share").alias("estimated"),
        )
    )


def languages(branches: Iterable[PastBranch], known_share: float) -> Report:
    """The tables and the heat map of each model and setting that was asked in several languages.

    A fact is the same in two languages if its pair_id is. Of several seeds the first counts.
    """
    by_setting: dict[str, dict[str, PastBranch]] = {}
    for branch in branches:
        fields = branch.metrics.recipe.fields
        variants = (fields["variant"] or "").split(",")
        variant = ",".join(part for part in variants if not part.startswith("language="))
        name = " ".join(filter(None, (branch.model, fields["setting"], variant)))
        language = branch.record["run"]["benchmark"]["language"]
        by_setting.setdefault(name, {}).setdefault(language, branch)
    reports = [
        _across_languages(name, settings, known_share)
        for name, settings in by_setting.items()
        if len(settings) > 1
    ]
    return join_reports(*reports)


def _across_languages(
    setting: str, branches: Mapping[str, PastBranch], known_share: float
) -> Report:
    """The report of one setting; `branches` are by language."""
    facts = {language: branch.facts for language, branch in branches.items()}
    labels = pl.concat(starmap(_labels, facts.items())).unique()
    ids = [pl.col(column).cast(pl.String) for column in FACT]
    answers, names = {}, {}
    for language, branch in branches.items():
        answers[language] = branch.matched_answers().select(*ids, "key", "correct")
        # The names of objects in all languages, as lemmas by the rules of this language.
        normaliser = Normaliser(branch.artifacts["matched"].recipe.fields["pipeline"])
        lemmas = labels.with_columns(key=normaliser.normalise(labels["text"]))
        names[language] = lemmas.with_columns(key(pl.col("key"))).drop("text")
    table = compare_languages(answers, names, seed=0, known_share=known_share, n_rounds=_ROUNDS)
    object_label = pl.col("objects").list.first().struct.field("labels").list.first()
    subject = pl.col("subjects").list.first().alias("subject")
    subjects = pl.concat(
        language_facts.pairs.select(*ids, subject, object=object_label, language=pl.lit(language))
        for language, language_facts in facts.items()
    )
    single = facts_known_in_one_language(answers, known_share)
    single = single.join(subjects, on=(*FACT, "language"), maintain_order="left")
    variant = threshold_variant(known_share)
    setting = " ".join(filter(None, (setting, variant)))
    suffix = setting.replace(" ", "-")
    shares = table.select("other", run="language", value="sharing")
    return Report(
        {f"languages-{suffix}": across_table(table), f"known-alone-{suffix}": alone_table(single)},
        {f"languages-{suffix}": knowledge_sharing_figure(shares, setting.replace(" ", "\n"))},
        {
            f"languages-{suffix}": f"Known in several languages, {setting}",
            f"known-alone-{suffix}": f"Known in one language alone, {setting}",
        },
        {f"languages-{suffix}": table.with_columns(variant=pl.lit(variant, pl.String))},
    )


def _labels(language: str, facts: Facts) -> pl.DataFrame:
    """relation_id, entity_id, text, language: a row for each name of each object."""
    objects = facts.pairs.select(pl.col("relation_id").cast(pl.String), "objects")
    rows = objects.explode("objects").unnest("objects")
    columns = rows.select("relation_id", entity_id="object_id", text="labels")
    return columns.explode("text").with_columns(language=pl.lit(language))
