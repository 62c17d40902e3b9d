"""published: the rows of the papers' tables, with or without the numbers of a run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.schemas import PLACE
from factsweep.operators.tables.shared.numbers import as_printed
from factsweep.operators.tables.shared.paper_table import select_scope
from factsweep.operators.tables.shared.pivot import OTHER_FACTS, PUBLISHED, add_source, pivot
from factsweep.operators.wording import join_list, suggestion
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.results import past_runs
from factsweep.pipeline.results.report import collect_result

_PAPERS = {
    "000": "BELIEF, 2024",
    "003": "BELIEF, 2025",
    "kamel": "KAMEL",
    "probelm": "PRobELM",
    "distractors": "Distractors",
}
_ROW = [name for name in PLACE if name != "metric"]


class PaperTable(NamedTuple):
    """Rows of one table of a paper, as texts."""

    title: str
    rows: pl.DataFrame


def models() -> list[str]:
    """The models that the papers have numbers of."""
    return _list_models(_load_papers())


def _list_models(papers: Mapping[str, pl.DataFrame]) -> list[str]:
    names = pl.concat(table["model"] for table in papers.values())
    return names.drop_nulls().unique().sort().to_list()


def build_paper_tables(names: Sequence[str], run: str | None, results: str) -> list[PaperTable]:
    """The papers' rows of some models (none: all), one table per table of a paper.

    With a `run`, its numbers follow those published for the same setting and metric, also of other
    models, and their difference where the facts are the same; others are left out.

    Raises:
        InputError: no paper has numbers of a model, there is no such run, or nothing that it
            measured was published.
    """
    papers = _load_papers()
    known_models = _list_models(papers)
    for name in names:
        if name not in known_models:
            hint = suggestion(name, known_models)
            raise InputError(
                f"no paper has numbers of {name}, but of {join_list(known_models)}.{hint}"
            )
    is_wanted = pl.col("model").is_in(list(names)) if names else pl.lit(value=True)
    parts = papers if run is None else _join_run(run, results)
    tables = [
        PaperTable(_format_title(paper, table), _format_rows(cells, run))
        for paper, rows in parts.items()
        for (table,), cells in rows.filter(is_wanted).group_by("table", maintain_order=True)
    ]
    if not tables:
        whose = f" of {join_list(names)}" * bool(names)
        raise InputError(
            f"nothing that {run} measured was published{whose}: its setting, variant and metrics "
            "must be those of a paper (docs/published.md)."
        )
    return tables


def _load_papers() -> dict[str, pl.DataFrame]:
    papers = dict.fromkeys(method.show.published for method in METHODS.values())
    tables = {paper: catalog.load_published(paper) for paper in papers}
    return {paper: add_source(rows) for paper, rows in tables.items() if rows is not None}


def _join_run(run: str, results: str) -> dict[str, pl.DataFrame]:
    """The published numbers that a run measured, with its own as `measured`, and `difference`.

    A run over a set that no paper has (the mini set) is compared with the sets of its paper, as of
    other facts.
    """
    branches = past_runs.branches(results, [run])
    result, paper = collect_result(branches), branches[0].benchmark_method.show.published
    if result.published is None:
        return {}
    published, on = add_source(result.published), ["setting", "variant", "slice", "metric"]
    if branches[0].benchmark in published["benchmark"]:
        on.append("benchmark")
    else:
        published = published.with_columns(source=pl.lit(OTHER_FACTS))
    metrics = result.tables["metrics"]
    by_prompt = metrics["variant"].str.contains("scope=prompt").any()
    rows = select_scope(metrics, "prompt" if by_prompt else "shared").drop_nulls("value")
    ours = rows.select(pl.col(PLACE).cast(pl.String), measured="value")
    joined = published.join(
        ours, on=on, nulls_equal=True, maintain_order="left", suffix=" of the run"
    )
    difference = pl.when(source=PUBLISHED).then(pl.col("measured") - pl.col("value"))
    return {paper: joined.with_columns(difference=difference)}


def _format_rows(cells: pl.DataFrame, run: str | None) -> pl.DataFrame:
    """The cells of one table as texts, a column per metric; empty parts of a place are left out."""
    metrics = (metric for method in METHODS.values() for metric in method.measure.metrics)
    titles = headings(metric for metric in metrics if metric.name in cells["metric"])
    heading = pl.col("metric").replace(titles)
    cells = cells.with_columns(heading=heading).with_row_index("row")
    cells = cells.with_columns(pl.min("row").over("setting", "variant", "slice"))
    keys = [name for name in _ROW if cells[name].count()]
    parts = [cells.with_columns(text=as_printed("value"))]
    if run is not None:
        keys.append("source")
        names = [name for name in cells.columns if name.endswith(" of the run")]
        own_columns = {name.removesuffix(" of the run"): pl.col(name) for name in names}
        own_columns |= {"source": pl.lit(run), "text": as_printed("measured")}
        difference = as_printed("difference", signed=True)
        differences = cells.with_columns(source=pl.lit("difference"), text=difference)
        parts += [cells.with_columns(**own_columns), differences.drop_nulls("difference")]
    long = pl.concat(parts).sort("row", maintain_order=True)
    return pivot(long, keys, titles.values())


def _format_title(paper: str, table: str) -> str:
    """`000:3` and `2` of KAMEL as the papers' names and places."""
    number, _, place = table.rpartition(":")
    name = _PAPERS[number or paper]
    return f"{name}, {f'Table {place}' if place.isdigit() else place}"
