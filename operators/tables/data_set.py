"""The figures of a data set as tables: its size and its diversity, with the published ones.

The tables of the two BELIEF papers and their printed names are in `belief_paper.yaml`.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from factsweep.operators.datasets.facts import Facts, Slice, counts
from factsweep.operators.datasets.facts import slice_single_objects as sliced
from factsweep.operators.datasets.kamel import find_marked_labels, split_sizes
from factsweep.operators.metrics.data_set import Encode, Parse, diversity
from factsweep.operators.prompts.clozes import answers
from factsweep.operators.prompts.retrieval import count_distractors
from factsweep.operators.schemas import empty
from factsweep.operators.tables.shared import paper_table
from factsweep.operators.tables.shared.numbers import decimal, of_metric
from factsweep.operators.tables.shared.pivot import relation_name


def _expand(place: Mapping[str, Any]) -> tuple[paper_table.Place, ...]:
    """One place per combination of the listed values, the first key slowest."""
    choices = [value if isinstance(value, list) else [value] for value in place.values()]
    return tuple(dict(zip(place, values, strict=True)) for values in product(*choices))


def _read_table(layout: Mapping[str, Any]) -> paper_table.Table:
    rows = tuple(place for places in layout["rows"] for place in _expand(places))
    headings = [heading for group in layout["columns"] for heading in group.items()]
    columns = tuple(paper_table.Column(heading, _expand(place)) for heading, place in headings)
    without = tuple(layout.get("without", ()))
    return paper_table.Table(
        layout["title"], tuple(layout["printed_in"]), layout["heads"], rows, columns, without
    )


_LAYOUT = yaml.safe_load(Path(__file__).with_name("belief_paper.yaml").read_text("utf-8"))
TABLES: Mapping[str, paper_table.Table] = {
    name: _read_table(table) for name, table in _LAYOUT["tables"].items()
}
NAMES: Mapping[str, str] = _LAYOUT["names"]


SIZES = ("relations", "templates", "unique_triples", "derived_triples", "pairs", "prompts")
DIFFERENCES = ("quantity", "lexicon", "syntax", "semantics")
_OF_RELATION = (*SIZES[1:], *DIFFERENCES)
_SUMS = ("n_same_type", "n_right", "n_sharing", "n_distractors")
_SPLITS = {
    "split": "Split",
    "relations": "Relations",
    "queries": "Queries",
    "answers": "Right answers",
    "several": "Queries with several",
    "labels": "Labels per answer",
}


def sizes_with_published(
    facts: Facts, name: str, published: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Table 1 of BELIEF for the set `name`: its counts, then those of the sets in the papers."""
    return _compare_published(counts(facts), SIZES, name, published, TABLES["table-1"].printed_in)


def diversity_with_published(
    diversity: pl.DataFrame, name: str, published: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Table 8 of BELIEF for the set `name`: its diversity, then that of the papers' sets."""
    overall = diversity.filter(pl.col("relation_id").is_null()).row(0, named=True)
    table = _compare_published(overall, DIFFERENCES, name, published, TABLES["table-8"].printed_in)
    differs = pl.col("source") == "difference"
    return table.with_columns(
        semantics=pl.when(differs).then(pl.lit("–")).otherwise(pl.col("semantics"))
    )


def by_relation(facts: Facts, diversity: pl.DataFrame) -> pl.DataFrame:
    """The counts and the diversity of each relation: `relation`, SIZES, DIFFERENCES; a row each."""
    measured = diversity.drop_nulls("relation_id").select("relation_id", *DIFFERENCES)
    sizes = pl.DataFrame([counts(facts.of(name)) for name in measured["relation_id"]])
    rows = pl.concat([measured, sizes], how="horizontal")
    labelled = rows.join(facts.relations, on="relation_id", how="left", maintain_order="left")
    return labelled.select(
        relation_name(pl.col("relation_id"), pl.col("label")).alias("relation"),
        *(
            of_metric(name).column_with_dashes(pl.col(name)).alias(_heading(name))
            for name in _OF_RELATION
        ),
    )


def missing(diversity: pl.DataFrame, not_asked: Mapping[str, str]) -> pl.DataFrame:
    """Why there are dashes: one row per figure and reason; `not_asked`: unmeasured figures."""
    rows = []
    for figure in DIFFERENCES:
        bare = diversity.filter(pl.col(figure).is_null(), pl.col("relation_id").is_not_null())
        if figure in not_asked:
            rows.append((figure, "all", not_asked[figure]))
        elif not bare.is_empty():
            reason = "no pairs" if figure == "quantity" else "fewer than two templates"
            rows.append((figure, ", ".join(bare["relation_id"]), reason))
    schema = dict.fromkeys(("figure", "relations", "reason"), pl.String())
    return pl.DataFrame(rows, schema=schema, orient="row")


def _compare_published(
    numbers: Mapping[str, float | None],
    metrics: tuple[str, ...],
    name: str,
    published: pl.DataFrame | None,
    tables: tuple[str, ...],
) -> pl.DataFrame:
    """The set's own row, its published row, the difference; then the papers' other sets."""
    parts = [paper_table.PUBLISHED_SCHEMA.to_frame(), *([] if published is None else [published])]
    printed = pl.concat(parts, how="diagonal_relaxed")
    printed = printed.filter(pl.col("metric").is_in(metrics), pl.col("table").is_in(list(tables)))
    benchmarks = printed.sort(pl.col("table").cast(pl.Enum(tables)), maintain_order=True)[
        "benchmark"
    ]
    rows = tuple({"benchmark": benchmark} for benchmark in dict.fromkeys((name, *benchmarks)))
    columns = tuple(
        paper_table.Column(_heading(metric), ({"metric": metric},)) for metric in metrics
    )
    table = paper_table.Table("", tables, {"benchmark": "set"}, rows, columns)
    measured = [(None, name, None, None, None, metric, numbers[metric], None) for metric in metrics]
    measured_rows = pl.DataFrame(measured, schema=paper_table.PUBLISHED_SCHEMA, orient="row")
    filled = paper_table.fill(table, measured_rows, printed, benchmark=name, names=NAMES).table
    return filled.filter(pl.col("set").eq(NAMES.get(name, name)) | pl.col("source").eq("published"))


def _heading(metric: str) -> str:
    return metric.replace("_", " ")


def sizes(
    facts: Facts, benchmark: str, *, parse: Parse | None = None, encode: Encode | None = None
) -> pl.DataFrame:
    """The set's own numbers as rows of the metrics table, with neither model nor setting."""
    of_set = diversity(facts, parse=parse, encode=encode).select(DIFFERENCES).row(-1, named=True)
    numbers = {**counts(facts), **{name: n for name, n in of_set.items() if n is not None}}
    values = list(map(float, numbers.values()))
    rows = {"benchmark": benchmark, "metric": list(numbers), "value": values}
    return pl.concat([empty("metrics"), pl.DataFrame(rows)], how="diagonal_relaxed")


def template_examples(facts: Facts, *, n_manual: int = 2, n_paraphrases: int = 3) -> pl.DataFrame:
    """The first manual templates of each relation, each with the first paraphrases of its group."""
    manual = facts.templates.filter(pl.col("origin") == "manual")
    first = manual.filter(pl.int_range(pl.len()).over("relation_id") < n_manual)
    paraphrased = facts.templates.filter(pl.col("origin") != "manual")
    place, group = pl.int_range(pl.len()), ["relation_id", "group"]
    paraphrases = paraphrased.filter(place.over(group) < n_paraphrases).drop_nulls("group")
    second = paraphrases.select(*group, paraphrase="text")
    rows = facts.relations.join(first, on="relation_id", maintain_order="left_right")
    rows = rows.join(second, on=group, how="left", maintain_order="left_right")
    relation = relation_name(pl.col("relation_id"), pl.col("label"))
    texts = {"manual template": "text", "paraphrased template": "paraphrase"}
    return rows.select(relation=relation, **texts)


def distractors_by_relation(facts: Facts) -> pl.DataFrame:
    """How many distractors facts have, by relation and in all (relation_id null), as sums."""
    single = sliced(facts, Slice())
    assert single.knowledge_base is not None
    single_answers = answers(single)
    sizes = count_distractors(single.knowledge_base, single_answers)
    rows = sizes.join(
        single_answers.select("pair_id", "relation_id"), on="pair_id", maintain_order="left"
    )
    n_distractors, sums = pl.col("n_distractors"), {name: pl.sum(name) for name in _SUMS}
    counts = {"n_without": (n_distractors == 0).sum(), "n_below_100": (n_distractors < 100).sum()}
    figures = {"n_facts": pl.len(), **counts, **sums}
    by_relation = rows.group_by("relation_id", maintain_order=True).agg(**figures)
    return pl.concat([by_relation, rows.select(relation_id=pl.lit(None, pl.String), **figures)])


def splits(facts: Facts) -> pl.DataFrame:
    """Table 1 of KAMEL for each split: one row per split."""
    sizes = split_sizes(facts).with_columns(decimal(2).column_with_dashes(pl.col("labels")))
    return sizes.select(list(_SPLITS)).cast(pl.String).rename(_SPLITS)


def distinguished_labels(facts: Facts) -> pl.DataFrame:
    """Labels of test queries that keep their special characters: one row per relation with any."""
    labels = find_marked_labels(facts.pairs.filter(split="test"))
    by_relation_id = labels.group_by("relation_id").agg(
        Labels=pl.len().cast(pl.String), Examples=pl.col("full").head(6).str.join(" · ")
    )
    return by_relation_id.sort("relation_id").rename({"relation_id": "Relation"})
