"""Pages: one HTML file of a run or of several, from their metrics, answers and records."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods.ability import PREFER, SCORE
from factsweep.operators.methods.method import Digest, Report, Result
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.pages import fact_browser, page
from factsweep.operators.pages.fact_browser import EXAMPLES, Asked
from factsweep.operators.pages.grid import Grid, beside_published, grid, headline, heat_map, tiles
from factsweep.operators.pages.page import Drawing, drawing, ran, ran_rows, terms_of
from factsweep.operators.prompts import chat
from factsweep.operators.tables.shared.wide import best_and_worst, join_columns, join_names
from factsweep.operators.wording import count
from factsweep.pipeline.results.past import PastBranch, thoughts
from factsweep.pipeline.stages.expand import by_relation, relation_of
from factsweep.pipeline.storage.artifact import Artifact

# A page stays under 5 MB: the shares of what grows with the facts, the runs and the relations.
_FACT_BYTES = 2_500_000
_FIGURE_BYTES = 1_000_000
_MOST_ASKED = 24
# Prompts in full are looked for in so many shards of a relation, evenly spread.
_MOST_SHARDS = 8
_COMPARISONS = "effects"  # the table that has a section of its own
_SHOWN = ("model", "benchmark", "settings", "decoding", "matching", "metrics", "cluster", "seed")
_PROMPT = ("prompt_id", "pair_id", "template_id", "context")

_CONTEXT = pl.col("context_id"), pl.col("text").alias("context")

_Digests = Callable[[Facts, pl.DataFrame], Digest]


def results_page(
    branches: Sequence[PastBranch],
    result: Result,
    report: Report,
    notes: Sequence[str],
) -> bytes:
    """The page of what was measured on one benchmark."""
    method = branches[0].how
    measure = method.measure
    metrics = _of_settings(branches, result.tables["metrics"])
    facts = branches[0].facts
    overall = headline(result.tables["metrics"], method.show.card)
    asked, templates = _told(branches[:_MOST_ASKED], facts)
    figures, left_out = _drawings(report)
    browser = _browser(asked, facts, len(branches)) if asked else None
    grids = {
        name: grid(table, name, _title_of(report, name))
        for name, table in report.tables.items()
        if table.height and table.width
    }
    comparisons = grids.pop(_COMPARISONS, None)
    models = list(dict.fromkeys(branch.model for branch in branches))
    who = ", ".join(models) if len(models) <= 3 else f"{len(models)} models"
    html = page.render(
        "page.html",
        title=f"{who} on {branches[0].benchmark}",
        lead=_lead(branches, facts, asked),
        warnings=notes,
        main_metric=headings(measure.metrics).get(measure.main_metric, measure.main_metric),
        tiles=list(tiles(metrics, measure.main_metric)),
        headline=overall,
        published=beside_published(result.tables["metrics"], result.published),
        terms=terms_of((row[0] for row in overall.rows), measure.metrics),
        figures=figures,
        comparisons=comparisons,
        heat_map=heat_map(metrics, measure.main_metric, facts.labels),
        templates=templates,
        browser=browser,
        tables=list(grids.values()),
        left_out=left_out,
        runs=list(_runs(branches)),
    )
    return html.encode()


def _lead(branches: Sequence[PastBranch], facts: Facts, asked: Sequence[Asked]) -> str:
    prompts = sum(sum(_rows(b.artifacts["prompts"], "prompts")) for b in branches)
    found = [each.facts["pair_id"] for each in asked]
    pairs = facts.pairs
    if found:
        pairs = pairs.filter(pl.col("pair_id").is_in(pl.concat(found).implode()))
    settings = list(dict.fromkeys(branch.setting for branch in branches))
    return (
        f"{count(pairs['relation_id'].n_unique(), 'relation')}, {count(pairs.height, 'fact')}, "
        f"{count(prompts, 'prompt')}; asked: {', '.join(settings)}."
    )


def _rows(artifact: Artifact, table: str) -> Collection[int]:
    """The rows of each shard; none of an artifact that was removed to save room."""
    return artifact.rows(table).values() if artifact.is_complete() else ()


def _of_settings(branches: Sequence[PastBranch], metrics: pl.DataFrame) -> pl.DataFrame:
    """The rows in the variants that were asked for, with `asked`: who was asked how."""
    variants = [branch.metrics.recipe.fields["variant"] for branch in branches]
    asked = pl.DataFrame({"variant": variants}, schema={"variant": pl.String}).unique()
    rows = metrics.join(asked, on="variant", how="semi", nulls_equal=True, maintain_order="left")
    several = metrics["model"].n_unique() > 1
    names = [*(["model"] if several else []), "setting", "variant"]
    return rows.with_columns(asked=join_names(*names))


def _told(branches: Sequence[PastBranch], facts: Facts) -> tuple[list[Asked], list[Grid]]:
    """The answers about the facts, and each setting's best and worst templates."""
    asked: list[Asked] = []
    templates = []
    has_models, seeds = len({branch.model for branch in branches}) > 1, Counter(map(str, branches))
    for branch in branches:
        digest = branch.how.show.digest
        if digest is None or not branch.artifacts["matched"].is_complete():
            continue
        of_relation = partial(_of_relation, branch, facts, digest)
        digests, examples = zip(*by_relation(of_relation, branch.relations), strict=True)
        replies, shown = pl.concat(each.replies for each in digests), pl.concat(examples)
        model = [branch.model] if has_models else []
        seed = [f"seed {branch.seed}"] if seeds[str(branch)] > 1 else []
        rows = pl.concat(each.facts for each in digests)
        for (own,), mine in rows.group_by("asked", maintain_order=True):  # of a setting in itself
            name = " ".join([*model, str(own or branch.setting), *seed])
            said = replies.filter(pl.col("asked").eq_missing(pl.lit(own, pl.String)))
            asked.append(Asked(name, mine, said, shown))
        shares = [each.templates for each in digests if each.templates is not None]
        if shares:
            table = best_and_worst(pl.concat(shares), facts.templates, facts.relations)
            name = " ".join([*model, branch.setting, *seed])
            templates.append(grid(table, "templates", name))
    return asked, templates


def _of_relation(
    branch: PastBranch, facts: Facts, digest: _Digests, relation: str
) -> tuple[Digest, pl.DataFrame]:
    """What is told of a relation's facts, and some of its prompts with their answers."""
    matched = branch.matched_answers(relation)
    found = digest(facts.of(relation), matched)
    by_fact = found.replies.group_by("pair_id", "asked", maintain_order=True)
    told = replace(found, replies=by_fact.head(fact_browser.MOST_REPLIES))
    is_scored = branch.how.ask.ability in (SCORE, PREFER)  # to such a text nothing is said
    complete = branch.answers.is_complete() and branch.artifacts["prompts"].is_complete()
    if is_scored or not complete:
        return told, EXAMPLES.to_frame()
    return told, _examples(branch, relation, matched)


def _examples(branch: PastBranch, relation: str, matched: pl.DataFrame) -> pl.DataFrame:
    """Some prompts of a relation in full, with their answers; of each fact the sampled one first.

    The others are right and wrong alternating.
    """
    prompts = branch.artifacts["prompts"]
    shards = [shard for shard in prompts.shards("prompts") if relation_of(shard) == relation]
    shards = shards[:: -(-len(shards) // _MOST_SHARDS) or 1]
    answered = prompts.store.each(partial(_answered, branch), shards)
    rows = pl.concat([_sampled(branch, relation), *answered], how="diagonal")
    found = _with_right(
        branch, relation, rows.unique("prompt_id", keep="first", maintain_order=True), matched
    )
    found = found.unique(["pair_id", "template_id", "right"], keep="first", maintain_order=True)
    turn = pl.int_range(pl.len()).over("pair_id", "right")
    ordered = found.sort(pl.col("samples").is_null(), turn, maintain_order=True)
    shown = ordered.group_by("pair_id", maintain_order=True).head(fact_browser.MOST_EXAMPLES)
    if prompts.recipe.fields["setting"].get("as") == "turns":
        shown = shown.with_columns(chat.shown(pl.col("context", "prompt")))
    return shown.select(pl.col(name).cast(dtype) for name, dtype in EXAMPLES.items())


def _answered(branch: PastBranch, shard: str) -> pl.DataFrame:
    """The prompts of a shard in full, with their answers."""
    prompts, said = branch.artifacts["prompts"], branch.answers
    return (
        prompts.read("prompts", shard)
        .filter(pl.col("same_as").is_null())  # the others' answers stand under the first of them
        .join(said.read(said.stage, shard), on="prompt_id", maintain_order="left")
        .pipe(join_columns, prompts.read("contexts", shard).select(*_CONTEXT), ["context_id"])
        .pipe(join_columns, thoughts(said, [shard]), ["prompt_id"])
        .select(*_PROMPT, "thought", answer=branch.how.ask.ability.column, prompt="query")
    )


def _sampled(branch: PastBranch, relation: str) -> pl.DataFrame:
    """The sampled prompts of a relation with all samples; greedy answers are the canary's."""
    prompts, again = branch.artifacts["prompts"], branch.artifacts.get("canary")
    blocks = [each for each in branch.further if each.stage == "samples"]
    if not blocks or again is None:
        return pl.DataFrame(schema={"prompt_id": pl.String, "samples": EXAMPLES["samples"]})
    said = again.read("canary", relation).select("prompt_id", answer="text")
    texts = pl.concat(each.read("samples", relation) for each in blocks).explode("texts")
    counts = texts.group_by("prompt_id", text="texts", maintain_order=True).agg(n=pl.len())
    ordered = counts.sort("n", descending=True, maintain_order=True)
    samples = ordered.group_by("prompt_id", maintain_order=True)
    return (
        prompts.read("ranked", relation)
        .join(samples.agg(samples=pl.struct("text", "n")), on="prompt_id", maintain_order="left")
        .pipe(join_columns, prompts.read("contexts", relation).select(*_CONTEXT), ["context_id"])
        .pipe(join_columns, said, ["prompt_id"])
        .pipe(join_columns, thoughts(again, [relation]), ["prompt_id"])
        .select(*_PROMPT, "answer", "samples", "thought", prompt="query")
    )


def _with_right(
    branch: PastBranch, relation: str, rows: pl.DataFrame, matched: pl.DataFrame
) -> pl.DataFrame:
    """The prompts with `right`, and `n_right` of their samples; null where it is not known."""
    is_sampled = "sampled" in branch.how.measure.matched
    artifact = branch.artifacts["matched"]
    sampled = artifact.read("sampled", relation) if is_sampled else pl.DataFrame()
    sources = ("right", matched, "correct"), ("n_right", sampled, "n_right_samples")
    for column, table, name in sources:
        if {"prompt_id", name} <= set(table.columns):
            known = table.select("prompt_id", pl.col(name).alias(column))
            rows = join_columns(rows, known, ["prompt_id"])
        else:
            rows = rows.with_columns(pl.lit(None).alias(column))
    return rows


def _browser(asked: Sequence[Asked], facts: Facts, n_settings: int) -> dict[str, Any]:
    found = fact_browser.encoded(facts, asked, most_bytes=_FACT_BYTES)
    limits = list(fact_browser.limits(found))
    if n_settings > _MOST_ASKED:
        limits.append(f"the first {_MOST_ASKED} of {n_settings} models and settings")
    return {"payload": found.payload, "n_facts": found.n_facts, "left_out": limits}


def _drawings(report: Report) -> tuple[list[Drawing], list[str]]:
    """The figures that a page has room for, and the names of the others."""
    shown: list[Drawing] = []
    left_out = []
    for name, figure in report.figures.items():
        found = drawing(figure, name, _title_of(report, name))
        size = len(found.svg) + sum(len(each.svg) for each in shown)
        if size <= _FIGURE_BYTES:
            shown.append(found)
        else:
            left_out.append(name)
    return shown, left_out


def _title_of(report: Report, name: str) -> str:
    return report.titles.get(name) or name.replace("-", " ").capitalize()


def _runs(branches: Sequence[PastBranch]) -> Iterator[dict[str, Any]]:
    for name, record in {branch.run: branch.record for branch in branches}.items():
        errors: Counter[str] = Counter()
        for branch in (each for each in branches if each.run == name):
            admitted = branch.artifacts.get("admitted")
            for artifact in (branch.answers, *([] if admitted is None else [admitted])):
                errors[branch.setting] += sum(_rows(artifact, "errors"))
        yield ran(name, record, ran_rows(record, errors), _SHOWN)
