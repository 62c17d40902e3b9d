"""What comes out of a study: its curve, the lives of its facts, and the papers' tables of all runs.

<study>/<label>/    the results of each run
       /report/     what `report` writes of them, with the curve and the lives of facts before it
"""

from collections.abc import Iterable, Mapping
from itertools import starmap
from typing import NamedTuple

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.estimates.intervals import banded
from factsweep.operators.matching.lemmas import key
from factsweep.operators.matching.normalise import Normaliser
from factsweep.operators.methods.method import Report, join_reports
from factsweep.operators.metrics.comparing.across_languages import (
    compare_languages,
    facts_known_in_one_language,
)
from factsweep.operators.metrics.comparing.along import (
    classify_lives,
    compare_along,
    count_lives,
    threshold_variant,
)
from factsweep.operators.metrics.comparing.paired import FACT
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.metrics.shared.rows import deciles
from factsweep.operators.schemas import empty
from factsweep.operators.tables import comparison as tables
from factsweep.operators.tables.belief import knowledge_sharing_figure
from factsweep.operators.tables.comparison import POINTS, across_table, alone_table
from factsweep.operators.tables.shared.wide import join_names
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.results import estimates, past
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.results.report import Together, report
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import write_report
from factsweep.pipeline.studies.study import LANGUAGE, Member, Study

_ROUNDS = 1000
_VALUE = ("value", "ci_low", "ci_high")
Branches = Mapping[str, PastBranch]  # by label, along the axis


class Findings(NamedTuple):
    """The tables that a terminal shows, and where the pages are, with what was left out."""

    tables: tuple[pl.DataFrame, ...]
    lines: tuple[str, ...]


@single_threaded_blas()
def write(study: Study) -> Findings:
    """Write what the runs of a study say together; those without results are left out.

    Raises:
        InputError: no run has results, or one is not whole.
    """
    there = [each for each in study.members if each.is_answered]
    out = below(study.results, f"{study.name}/report")
    points = [_estimated(each) for each in there if not each.is_complete]
    names = [each.run.name for each in there]
    full = [each.run.name for each in there if each.is_complete]
    spoken = Report({})
    if study.axis == LANGUAGE and full:
        spoken = languages(past.branches(study.results, full), study.plan.known_share)

    def more(part: Together) -> Report:
        found = _together(study, part)
        points.append(found.raw["along"])
        return join_reports(found, spoken)

    lines = tuple(report(names, study.results, out, more=more))
    rows = _ordered(study, pl.concat(points))
    if rows["estimated"].is_not_null().any():
        # Ranks of the full runs alone would mislead.
        unranked = {name: pl.lit(None, POINTS[name]) for name in ("rank_low", "rank_high")}
        rows = banded(rows.with_columns(**unranked)).select(POINTS.names())
    whole = join_reports(_along(study, rows), spoken)
    write_report(Store(out), whole)
    shown = [each for name, each in whole.tables.items() if name in whole.raw]
    return Findings(tuple(shown), lines)


def _along(study: Study, points: pl.DataFrame) -> Report:
    """The table and the figure of points along the axis."""
    measure = study.members[0].run.method.measure
    metric = headings(measure.metrics).get(measure.main_metric, measure.main_metric)
    return Report(
        {"along": tables.along_table(points, study.axis, metric, study.reference)},
        {"along": tables.along_figure(points, study.axis, metric)},
        {"along": f"{metric} along {study.axis}"},
        {"along": points},
    )


def _ordered(study: Study, points: pl.DataFrame) -> pl.DataFrame:
    """The points by setting, along the axis."""
    at = {each.label: each.at for each in study.members}
    placed = points.with_columns(at=pl.col("label").replace_strict(at, return_dtype=pl.Float64))
    settings = pl.Enum(points["setting"].unique(maintain_order=True))
    return placed.sort(pl.col("setting").cast(settings), "at", maintain_order=True)


def _together(study: Study, part: Together) -> Report:
    """What runs over the same facts say, setting by setting; of several seeds, the first."""
    labels = {each.run.name: each.label for each in study.members}
    settings = dict.fromkeys(each.setting for each in part.branches)
    points, found = [], list[Report]()
    for setting in settings:
        ours = [each for each in part.branches if each.setting == setting]
        first = {labels[each.run]: each for each in reversed(ours)}
        branches = {label: first[label] for label in study.labels if label in first}
        facts = _facts(branches)
        points.append(_points(study, setting, branches, facts))
        found.append(_lives(study, setting, branches, facts))
    return join_reports(_along(study, _ordered(study, pl.concat(points))), *found)


class _Facts(NamedTuple):
    """What each run says of each fact: the columns that `along` reads, and those of `lives`."""

    terms: pl.DataFrame
    shares: pl.DataFrame


def _facts(branches: Branches) -> _Facts | None:
    """The facts of runs side by side; null where there is one run, or none can be compared."""
    method = next(iter(branches.values())).how
    compare, main = method.compare, method.measure.main_metric
    if compare is None or len(branches) < 2:
        return None
    terms, shares = [], []
    for name, branch in branches.items():
        label = pl.lit(name).alias("label")
        for relation in branch.relations:
            matched = branch.matched(relation)
            own = compare.terms(matched, matched, "fact", 1.0).filter(metric=main)
            terms.append(
                own.select(label, *FACT, pl.col("first").alias("numerator"), "denominator")
            )
            shares.append(compare.evidence(matched).select(label, *FACT, "share"))
    return _Facts(pl.concat(terms), pl.concat(shares))


def _points(study: Study, setting: str, branches: Branches, facts: _Facts | None) -> pl.DataFrame:
    """One row per run (columns: POINTS): its metric as printed, and beside the others' by facts."""
    method = next(iter(branches.values())).how
    main, labels = method.measure.main_metric, list(branches)
    printed = pl.col("slice").is_null()  # as its own tables have it
    rows = [
        (
            label,
            *each.metrics.read_all("metrics").filter(printed, metric=main).select(_VALUE).row(0),
        )
        for label, each in branches.items()
    ]
    points = pl.DataFrame(rows, {n: POINTS[n] for n in ("label", *_VALUE)}, orient="row")
    if facts is not None:
        reference = study.reference if study.reference in labels else labels[0]
        found = compare_along(facts.terms, labels, reference=reference, seed=0, n_rounds=_ROUNDS)
        beside = found.drop(_VALUE)
        points = points.join(beside, on="label", how="left", maintain_order="left")
    return _typed(points.with_columns(setting=pl.lit(setting)))


def _typed(points: pl.DataFrame) -> pl.DataFrame:
    """The columns POINTS; one that is not there is null."""
    found = pl.concat([POINTS.to_frame(), points], how="diagonal_relaxed")
    return found.select(POINTS.names()).cast(POINTS)


def _lives(study: Study, setting: str, branches: Branches, said: _Facts | None) -> Report:
    """How facts fare along the axis; nothing where runs cannot be compared, or there is one."""
    if said is None:
        return Report({})
    labels, known_share = list(branches), study.plan.known_share
    found = classify_lives(said.shares, labels, known_share=known_share)
    facts = next(iter(branches.values())).facts
    subjects = facts.pairs.select(
        pl.col("pair_id").cast(pl.String), subject=pl.col("subjects").list.first()
    )
    found = found.join(subjects, on="pair_id", how="left", maintain_order="left")
    variant = threshold_variant(known_share)
    setting = " ".join(filter(None, (setting, variant)))
    asked = setting.replace(" ", "-")
    name, facts_name = f"lives-{asked}", f"lives-of-facts-{asked}"
    known = f"known is right under more than {100 * known_share:g} % of the prompts, twice in a row"
    by_relation = Report(
        {
            name: tables.lives_table(count_lives(found), "relation", facts.labels),
            facts_name: tables.facts_table(found, facts.labels),
        },
        {name: tables.lives_figure(found, labels)},
        {
            name: f"The life of facts, {setting}: {known}",
            facts_name: f"Each fact along {study.axis}, {setting}",
        },
        {name: found.with_columns(variant=pl.lit(variant, pl.String))},
    )
    return join_reports(by_relation, _lives_by_popularity(setting, found, facts))


def _lives_by_popularity(setting: str, found: pl.DataFrame, facts: Facts) -> Report:
    """How facts fare by how popular they are; nothing where the set does not say."""
    details = facts.further.get("details", empty("details")).unique("pair_id", keep="first")
    tenths = deciles(details.join(found, on="pair_id", how="semi"))
    if tenths.is_empty():
        return Report({})
    counts = count_lives(found.join(tenths, on="pair_id"), "decile")
    name = f"lives-by-popularity-{setting.replace(' ', '-')}"
    title = f"The life of facts by their popularity, 0 the least popular tenth, {setting}"
    return Report({name: tables.lives_table(counts, "popularity", {})}, titles={name: title})


def _estimated(member: Member) -> pl.DataFrame:
    """The points of a run that asked a part of its prompts."""
    main = member.run.method.measure.main_metric
    rows = estimates.read(member.run.results, member.run.name).estimates.filter(metric=main)
    asked = join_names("setting", "variant")
    return _typed(
        rows.select(
            asked.alias("setting"),
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
    asked: dict[str, dict[str, PastBranch]] = {}
    for branch in branches:
        fields, language = (
            branch.metrics.recipe.fields,
            branch.record["run"]["benchmark"]["language"],
        )
        variant = (fields["variant"] or "").split(",")
        beside = ",".join(each for each in variant if not each.startswith("language="))
        how = " ".join(filter(None, (branch.model, fields["setting"], beside)))
        asked.setdefault(how, {}).setdefault(language, branch)
    several = {how: each for how, each in asked.items() if len(each) > 1}
    return join_reports(*(_of(how, each, known_share) for how, each in several.items()))


def _of(how: str, branches: Mapping[str, PastBranch], known_share: float) -> Report:
    facts = {name: each.facts for name, each in branches.items()}
    labels = pl.concat(starmap(_labels, facts.items())).unique()
    ids = [pl.col(column).cast(pl.String) for column in FACT]
    answers = {
        name: branch.matched_answers().select(*ids, "key", "correct")
        for name, branch in branches.items()
    }
    names = {name: _names(branch, labels) for name, branch in branches.items()}
    table = compare_languages(answers, names, seed=0, known_share=known_share, n_rounds=_ROUNDS)
    alone = facts_known_in_one_language(answers, known_share)
    alone = alone.join(_subjects(facts), on=(*FACT, "language"), maintain_order="left")
    variant = threshold_variant(known_share)
    setting = " ".join(filter(None, (how, variant)))
    name = setting.replace(" ", "-")
    shares = table.select("other", run="language", value="sharing")
    return Report(
        {f"languages-{name}": across_table(table), f"known-alone-{name}": alone_table(alone)},
        {f"languages-{name}": knowledge_sharing_figure(shares, setting.replace(" ", "\n"))},
        {
            f"languages-{name}": f"Known in several languages, {setting}",
            f"known-alone-{name}": f"Known in one language alone, {setting}",
        },
        {f"languages-{name}": table.with_columns(variant=pl.lit(variant, pl.String))},
    )


def _labels(language: str, facts: Facts) -> pl.DataFrame:
    """relation_id, entity_id, text, language: a row for each name of each object."""
    objects = facts.pairs.select(pl.col("relation_id").cast(pl.String), "objects")
    rows = objects.explode("objects").unnest("objects")
    columns = rows.select("relation_id", entity_id="object_id", text="labels")
    return columns.explode("text").with_columns(language=pl.lit(language))


def _subjects(facts: Mapping[str, Facts]) -> pl.DataFrame:
    """The subject and the first right answer of each fact, as it is asked in each language."""
    label = pl.col("objects").list.first().struct.field("labels").list.first()
    subject = pl.col("subjects").list.first()
    shown = (*(pl.col(each).cast(pl.String) for each in FACT), subject.alias("subject"))
    return pl.concat(
        each.pairs.select(*shown, object=label, language=pl.lit(name))
        for name, each in facts.items()
    )


def _names(branch: PastBranch, labels: pl.DataFrame) -> pl.DataFrame:
    """The names of objects in all languages, as lemmas by the rules of the branch's language."""
    normaliser = Normaliser(branch.artifacts["matched"].recipe.fields["pipeline"])
    lemmas = labels.with_columns(key=normaliser.normalise(labels["text"]))
    return lemmas.with_columns(key(pl.col("key"))).drop("text")
