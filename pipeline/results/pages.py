"""Pages: one HTML file of a run or of several, from their metrics, answers and records."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods.method import PREFER, SCORE, Digest, Report, Result
from factsweep.operators.metrics.comparing.profile import SAYS
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.pages import fact_browser, page
from factsweep.operators.pages.fact_browser import EXAMPLES, SettingAnswers
from factsweep.operators.pages.page import (
    Drawing,
    Grid,
    beside_published,
    describe_run,
    drawing,
    grid,
    headline,
    heat_map,
    ran_rows,
    terms_of,
    tiles,
)
from factsweep.operators.prompts import chat
from factsweep.operators.tables.shared.pivot import best_and_worst, join_columns, join_names
from factsweep.operators.wording import count
from factsweep.pipeline.results.answers import thoughts
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.stages.expand import by_relation, relation_of
from factsweep.pipeline.storage.artifact import Artifact

# A page stays under 5 MB: bytes for its growing parts.
_FACT_BYTES = 2_500_000
_FIGURE_BYTES = 1_000_000
_MAX_SETTINGS = 24
_MAX_SHARDS = 8  # of a relation are read for prompts in full, evenly spread
_COMPARISONS = "effects"  # the table with a section of its own
_FIELDS = ("model", "benchmark", "settings", "decoding", "matching", "metrics", "cluster", "seed")
_PROMPT = ("prompt_id", "pair_id", "template_id", "context")
_CONTEXT = pl.col("context_id"), pl.col("text").alias("context")

_Digests = Callable[[Facts, pl.DataFrame], Digest]


def results_page(
    branches: Sequence[PastBranch], result: Result, report: Report, notes: Sequence[str]
) -> bytes:
    """The page of the results of settings over the same facts."""
    method, facts = branches[0].benchmark_method, result.facts
    measure = method.measure
    metrics = _select_settings(branches, result.tables["metrics"])
    overall = headline(result.tables["metrics"], method.show.card)
    settings_answers, templates = _collect_answers(branches[:_MAX_SETTINGS], facts)
    browser = _browse(facts, settings_answers)
    if browser is not None and len(branches) > _MAX_SETTINGS:
        limit = f"the first {_MAX_SETTINGS} of {len(branches)} models and settings"
        browser["left_out"].append(limit)
    figures, left_out = list[Drawing](), []
    for name, plot in report.figures.items():
        candidate = drawing(plot, name, _title(report, name))
        if sum(len(figure.svg) for figure in (*figures, candidate)) <= _FIGURE_BYTES:
            figures.append(candidate)
        else:
            left_out.append(name)
    grids = {
        name: grid(table, name, _title(report, name))
        for name, table in report.tables.items()
        if table.height and table.width
    }
    comparisons = grids.pop(_COMPARISONS, None)
    models = list(dict.fromkeys(branch.model for branch in branches))
    names = ", ".join(models) if len(models) <= 3 else f"{len(models)} models"
    html = page.render(
        "page.html",
        title=f"{names} on {branches[0].benchmark}",
        lead=_format_lead(branches, facts, settings_answers),
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
        runs=list(_describe_runs(branches)),
    )
    return html.encode()


def profile_page(
    facts: Facts,
    answers: Mapping[str, tuple[PastBranch, pl.DataFrame]],
    report: Report,
    notes: Sequence[str],
) -> bytes:
    """The page of a profile: its tables and figure, and the facts, whose pairs have a `kind`.

    `answers` has each run by label, with its pair_id of each `fact`.
    """
    settings = [
        _rename_pairs(setting, label, joined)
        for label, (branch, joined) in answers.items()
        for setting in _collect_answers([branch], branch.facts)[0]
    ]
    kinds = facts.pairs["kind"].unique().sort().to_list()
    branches = [branch for branch, _ in answers.values()]
    models = ", ".join(dict.fromkeys(branch.model for branch in branches))
    content = {
        "title": f"What {models} knows, fact by fact",
        "lead": f"{count(facts.pairs.height, 'fact')}, joined from {', '.join(answers)}.",
        "warnings": notes,
        "main_metric": "Facts by kind",
        "terms": {kind: page.Term(kind, says, "", "") for kind, says in SAYS.items()},
        "headline": grid(report.tables["kinds"], "kinds", _title(report, "kinds")),
        "figures": [drawing(f, name, _title(report, name)) for name, f in report.figures.items()],
        "browser": _browse(facts, settings, kinds),
        "tables": [grid(t, name, _title(report, name)) for name, t in report.tables.items()],
        "runs": list(_describe_runs(branches)),
    }
    empty = dict.fromkeys(("tiles", "templates", "left_out"), ())
    nothing = dict.fromkeys(("published", "comparisons", "heat_map"))
    return page.render("page.html", **empty, **nothing, **content).encode()


def _browse(
    facts: Facts, settings: Sequence[SettingAnswers], kinds: Sequence[str] = ()
) -> dict[str, Any] | None:
    """The facts with their answers, and what had to be left out; null without answers."""
    if not settings:
        return None
    encoded = fact_browser.encode_facts(facts, settings, most_bytes=_FACT_BYTES)
    limits = list(fact_browser.limits(encoded))
    return {**encoded._asdict(), "left_out": limits, "kinds": kinds}


def _rename_pairs(setting: SettingAnswers, label: str, joined: pl.DataFrame) -> SettingAnswers:
    """The answers of a run, under its label and the pair ids of the facts that they are about."""

    def rename(rows: pl.DataFrame) -> pl.DataFrame:
        rows = rows.join(joined, on="pair_id", maintain_order="left")
        return rows.with_columns(pair_id="fact").drop("fact")

    facts = rename(setting.facts).unique("pair_id", keep="first", maintain_order=True)
    return SettingAnswers(label, facts, rename(setting.replies), rename(setting.examples))


def _title(report: Report, name: str) -> str:
    return report.titles.get(name) or name.replace("-", " ").capitalize()


def _format_lead(
    branches: Sequence[PastBranch], facts: Facts, settings_answers: Sequence[SettingAnswers]
) -> str:
    n_prompts = sum(sum(_row_counts(branch.artifacts["prompts"], "prompts")) for branch in branches)
    pairs = facts.pairs
    if settings_answers:
        pair_ids = pl.concat(setting.facts["pair_id"] for setting in settings_answers)
        pairs = pairs.filter(pl.col("pair_id").is_in(pair_ids.implode()))
    settings = list(dict.fromkeys(branch.setting for branch in branches))
    return (
        f"{count(pairs['relation_id'].n_unique(), 'relation')}, {count(pairs.height, 'fact')}, "
        f"{count(n_prompts, 'prompt')}; asked: {', '.join(settings)}."
    )


def _row_counts(artifact: Artifact, table: str) -> Collection[int]:
    """The number of rows of each shard; empty if the artifact was removed."""
    return artifact.rows(table).values() if artifact.is_complete() else ()


def _select_settings(branches: Sequence[PastBranch], metrics: pl.DataFrame) -> pl.DataFrame:
    """The rows of the variants of the settings, with `asked`: the name of model and setting."""
    variants = [branch.metrics.recipe.fields["variant"] for branch in branches]
    variant_rows = pl.DataFrame({"variant": variants}, schema={"variant": pl.String}).unique()
    rows = metrics.join(
        variant_rows, on="variant", how="semi", nulls_equal=True, maintain_order="left"
    )
    has_models = metrics["model"].n_unique() > 1
    names = [*(["model"] if has_models else []), "setting", "variant"]
    return rows.with_columns(asked=join_names(*names))


def _collect_answers(
    branches: Sequence[PastBranch], facts: Facts
) -> tuple[list[SettingAnswers], list[Grid]]:
    """The answers about the facts, and each setting's best and worst templates."""
    settings_answers: list[SettingAnswers] = []
    templates = []
    has_models, seeds = len({branch.model for branch in branches}) > 1, Counter(map(str, branches))
    for branch in branches:
        digest = branch.benchmark_method.show.digest
        if digest is None or not branch.artifacts["matched"].is_complete():
            continue
        digest_relation = partial(_digest_relation, branch, facts, digest)
        relations = by_relation(digest_relation, branch.relations)
        digests = [relation_digest for relation_digest, _ in relations]
        replies = pl.concat(relation_digest.replies for relation_digest in digests)
        examples = pl.concat(rows for _, rows in relations)
        model = [branch.model] if has_models else []
        seed = [f"seed {branch.seed}"] if seeds[str(branch)] > 1 else []
        rows = pl.concat(relation_digest.facts for relation_digest in digests)
        for (variant,), group in rows.group_by("asked", maintain_order=True):
            name = " ".join([*model, str(variant or branch.setting), *seed])
            is_same = pl.col("asked").eq_missing(pl.lit(variant, pl.String))
            settings_answers.append(SettingAnswers(name, group, replies.filter(is_same), examples))
        shares = [part.templates for part in digests if part.templates is not None]
        if shares:
            table = best_and_worst(pl.concat(shares), facts.templates, facts.relations)
            name = " ".join([*model, branch.setting, *seed])
            templates.append(grid(table, "templates", name))
    return settings_answers, templates


def _digest_relation(
    branch: PastBranch, facts: Facts, digest: _Digests, relation: str
) -> tuple[Digest, pl.DataFrame]:
    """The digest of a relation's facts, and some of its prompts with their answers."""
    matched = branch.matched_answers(relation)
    of_relation = digest(facts.of(relation), matched)
    by_fact = of_relation.replies.group_by("pair_id", "asked", maintain_order=True)
    of_relation = replace(of_relation, replies=by_fact.head(fact_browser.MOST_REPLIES))
    has_texts = branch.benchmark_method.ask.ability not in (SCORE, PREFER)
    is_complete = branch.answers.is_complete() and branch.artifacts["prompts"].is_complete()
    if has_texts and is_complete:
        return of_relation, _choose_examples(branch, relation, matched)
    return of_relation, EXAMPLES.to_frame()


def _choose_examples(branch: PastBranch, relation: str, matched: pl.DataFrame) -> pl.DataFrame:
    """Some prompts of a relation in full, with their answers.

    The sampled prompt of each fact comes first, then right and wrong ones alternate.
    """
    prompts = branch.artifacts["prompts"]
    shards = [shard for shard in prompts.shards("prompts") if relation_of(shard) == relation]
    shards = shards[:: -(-len(shards) // _MAX_SHARDS) or 1]
    answered = prompts.store.each(partial(_read_answered_prompts, branch), shards)
    rows = pl.concat([_read_sampled(branch, relation), *answered], how="diagonal")
    rows = rows.unique("prompt_id", keep="first", maintain_order=True)
    rows = _join_right(branch, relation, rows, matched)
    rows = rows.unique(["pair_id", "template_id", "right"], keep="first", maintain_order=True)
    turn = pl.int_range(pl.len()).over("pair_id", "right")
    rows = rows.sort(pl.col("samples").is_null(), turn, maintain_order=True)
    rows = rows.group_by("pair_id", maintain_order=True).head(fact_browser.MOST_EXAMPLES)
    if prompts.recipe.fields["setting"].get("as") == "turns":
        rows = rows.with_columns(chat.format_chats(pl.col("context", "prompt")))
    return rows.select(pl.col(name).cast(dtype) for name, dtype in EXAMPLES.items())


def _read_answered_prompts(branch: PastBranch, shard: str) -> pl.DataFrame:
    prompts, answers = branch.artifacts["prompts"], branch.answers
    return (
        prompts.read("prompts", shard)
        .filter(pl.col("same_as").is_null())  # answers of equal prompts have the id of the first
        .join(answers.read(answers.stage, shard), on="prompt_id", maintain_order="left")
        .pipe(join_columns, prompts.read("contexts", shard).select(*_CONTEXT), ["context_id"])
        .pipe(join_columns, thoughts(answers, [shard]), ["prompt_id"])
        .select(
            *_PROMPT, "thought", answer=branch.benchmark_method.ask.ability.column, prompt="query"
        )
    )


def _read_sampled(branch: PastBranch, relation: str) -> pl.DataFrame:
    """The sampled prompts of a relation with all samples; greedy answers are the canary's."""
    prompts, canary = branch.artifacts["prompts"], branch.artifacts.get("canary")
    blocks = [artifact for artifact in branch.extra_outputs if artifact.stage == "samples"]
    if not blocks or canary is None:
        return pl.DataFrame(schema={"prompt_id": pl.String, "samples": EXAMPLES["samples"]})
    answers = canary.read("canary", relation).select("prompt_id", answer="text")
    texts = pl.concat(block.read("samples", relation) for block in blocks).explode("texts")
    counts = texts.group_by("prompt_id", text="texts", maintain_order=True).agg(n=pl.len())
    ordered = counts.sort("n", descending=True, maintain_order=True)
    samples = ordered.group_by("prompt_id", maintain_order=True)
    return (
        prompts.read("ranked", relation)
        .join(samples.agg(samples=pl.struct("text", "n")), on="prompt_id", maintain_order="left")
        .pipe(join_columns, prompts.read("contexts", relation).select(*_CONTEXT), ["context_id"])
        .pipe(join_columns, answers, ["prompt_id"])
        .pipe(join_columns, thoughts(canary, [relation]), ["prompt_id"])
        .select(*_PROMPT, "answer", "samples", "thought", prompt="query")
    )


def _join_right(
    branch: PastBranch, relation: str, rows: pl.DataFrame, matched: pl.DataFrame
) -> pl.DataFrame:
    """The prompts with `right`, and `n_right` of their samples; null where unknown."""
    is_sampled = "sampled" in branch.benchmark_method.measure.matched
    artifact = branch.artifacts["matched"]
    sampled = artifact.read("sampled", relation) if is_sampled else pl.DataFrame()
    sources = ("right", matched, "correct"), ("n_right", sampled, "n_right_samples")
    for column, table, name in sources:
        if {"prompt_id", name} <= set(table.columns):
            values = table.select("prompt_id", pl.col(name).alias(column))
            rows = join_columns(rows, values, ["prompt_id"])
        else:
            rows = rows.with_columns(pl.lit(None).alias(column))
    return rows


def _describe_runs(branches: Sequence[PastBranch]) -> Iterator[dict[str, Any]]:
    for name, record in {branch.run: branch.record for branch in branches}.items():
        errors: Counter[str] = Counter()
        for branch in branches:
            if branch.run == name:
                artifacts = [branch.answers, branch.artifacts.get("admitted")]
                n_errors = (sum(_row_counts(a, "errors")) for a in artifacts if a is not None)
                errors[branch.setting] += sum(n_errors)
        yield describe_run(name, record, ran_rows(record, errors), _FIELDS)
