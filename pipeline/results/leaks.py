"""Leaks: prompts that have their answer in them, and Acc@1 of these and of the others.

No paper has this: they ask such prompts like all others, and so does factsweep (docs/metrics.md).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

import polars as pl

from factsweep.operators.methods.ability import GENERATE
from factsweep.operators.metrics.belief.answers import ACC_AT_1, acc_at_1_terms
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.prompts.expansion import showing, telling
from factsweep.operators.schemas import schema
from factsweep.operators.tables.shared.numbers import SHARE
from factsweep.pipeline.results import past
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages.expand import by_relation, prompts_of, shards_of
from factsweep.pipeline.storage.artifact import Artifact

TITLE = "Acc@1 by where a right answer stands in the prompt"
LEAKS = schema(
    "model text, setting text, place text, n int, value float, ci_low float, ci_high float"
)
PLACES = ("its demonstrations", "what it asks", "nowhere")
_MANY = 0.1  # of the prompts: Acc@1 of all of them should not be read alone
_JUDGED = ("prompt_id", "relation_id", "pair_id", "correct")
_READ = ("prompt_id", "context_id", "pair_id", "query")


def leaks(branches: Sequence[PastBranch]) -> pl.DataFrame:
    """Acc@1 of the prompts of each setting by where a right answer stands in them: LEAKS.

    A prompt counts at the first of PLACES; `n` has an answer. Of several seeds the first counts.
    Settings without a leak have no row, nor have those whose prompts were removed.
    """
    found = [row for seeds in past.by_setting(branches).values() for row in _of(seeds[0])]
    return pl.DataFrame(found, LEAKS, orient="row")


def leaks_table(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows for people (columns: LEAKS).

    >>> row = ("m", "4-template", "nowhere", 152, 0.25, 0.2, 0.3)
    >>> leaks_table(pl.DataFrame([row], LEAKS, orient="row")).row(0)
    ('m', '4-template', 'nowhere', 152, '.2500', '.2000–.3000')
    """
    counts = {"a right answer in": "place", "prompts": "n"}
    shares = {"Acc@1": SHARE.dashed(pl.col("value")), "95 % interval": SHARE.interval()}
    return rows.select("model", "setting", **counts, **shares)


def said(rows: pl.DataFrame) -> Iterator[str]:
    """A sentence for each setting of which a tenth of the prompts have their answer in them.

    >>> rows = [("m", "s", place, 3 if place == "its demonstrations" else 1, 0.2, None, None)
    ...     for place in ("its demonstrations", "nowhere")]
    >>> list(said(pl.DataFrame(rows, LEAKS, orient="row")))
    ['m, s: 3 of 4 prompts have their answer in them; Acc@1 of the others is .2000.']
    """
    for (model, setting), mine in rows.group_by("model", "setting", maintain_order=True):
        others = mine.filter(place=PLACES[-1])
        n, n_others = int(mine["n"].sum()), int(others["n"].sum())
        if n - n_others > _MANY * n:
            left = SHARE.text(others["value"].item()) if n_others else "unknown: there are none"
            yield (
                f"{model}, {setting}: {n - n_others:,} of {n:,} prompts have their answer in them; "
                f"Acc@1 of the others is {left}."
            )


def _of(branch: PastBranch) -> Iterator[tuple[object, ...]]:
    method = branch.how
    if method.measure.main_metric != ACC_AT_1.name or method.ask.ability != GENERATE:
        return
    prompts, matched = (branch.artifacts[each] for each in ("prompts", "matched"))
    if not (prompts.is_complete() and matched.is_complete()):
        return
    placed = by_relation(partial(_placed, prompts, branch.facts.pairs), prompts.shards("ranked"))
    first = pl.concat(chain.from_iterable(placed)).unique("prompt_id", keep="first")
    if first.is_empty():
        return
    table = method.measure.answers
    judged = by_relation(partial(_judged, matched, table, first), matched.shards(table))
    for number, place in enumerate(PLACES):
        counts, terms = zip(*(each[number] for each in judged), strict=True)
        if n := sum(counts):
            value = bootstrap_ratio(pl.concat(terms), seed=branch.seed).overall
            yield branch.model, branch.setting, place, n, *value


def _judged(
    matched: Artifact, table: str, placed: pl.DataFrame, relation: str
) -> list[tuple[int, pl.DataFrame]]:
    """Of each place, how many answers of a relation it has, and the terms of their Acc@1."""
    rows = matched.read(table, relation, _JUDGED)
    rows = rows.join(placed, on="prompt_id", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("place").fill_null(PLACES[-1]))
    parts = (rows.filter(place=place) for place in PLACES)
    return [(mine.height, acc_at_1_terms(mine)) for mine in parts]


def _placed(prompts: Artifact, pairs: pl.DataFrame, relation: str) -> list[pl.DataFrame]:
    """A relation's prompts with a right answer in them, by place: prompt_id, place."""
    rows = prompts_of(prompts, relation, _READ)
    shards = shards_of(prompts, "contexts", relation)
    contexts = pl.concat(prompts.some("contexts", shards))
    shown = showing(rows, contexts.unique("context_id"), pairs, "object")
    return [
        pl.DataFrame({"prompt_id": ids}, {"prompt_id": pl.String}).with_columns(place=pl.lit(place))
        for place, ids in zip(PLACES, (shown, telling(rows, pairs)), strict=False)
    ]
