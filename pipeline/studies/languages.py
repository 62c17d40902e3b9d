"""The same facts asked in several languages: what is known where, and whether answers agree."""

from collections.abc import Iterable, Mapping
from itertools import starmap

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.matching.lemmas import key
from factsweep.operators.matching.normalise import Normaliser
from factsweep.operators.methods.method import Report, joined
from factsweep.operators.metrics.comparing.across_languages import (
    across_languages,
    known_in_one_alone,
)
from factsweep.operators.metrics.comparing.along import threshold_variant
from factsweep.operators.metrics.comparing.paired import FACT
from factsweep.operators.tables.belief.figures import knowledge_sharing_figure
from factsweep.operators.tables.runs.comparison import across_table, alone_table
from factsweep.pipeline.results.past import PastBranch

_ROUNDS = 1000


def languages(branches: Iterable[PastBranch], known_share: float) -> Report:
    """The tables and the heat map of each model and setting that was asked in several languages.

    A fact is the same in two languages if its pair_id is. Of several seeds the first counts.
    """
    asked: dict[str, dict[str, PastBranch]] = {}
    for branch in branches:
        language = branch.record["run"]["benchmark"]["language"]
        asked.setdefault(_asked(branch), {}).setdefault(language, branch)
    several = {how: each for how, each in asked.items() if len(each) > 1}
    return joined(*(_of(how, each, known_share) for how, each in several.items()))


def _asked(branch: PastBranch) -> str:
    """The model and the setting, whatever the language."""
    fields = branch.metrics.recipe.fields
    variant = (fields["variant"] or "").split(",")
    beside = [each for each in variant if not each.startswith("language=")]
    return " ".join(filter(None, (branch.model, fields["setting"], ",".join(beside))))


def _of(how: str, branches: Mapping[str, PastBranch], known_share: float) -> Report:
    facts = {name: each.facts for name, each in branches.items()}
    labels = pl.concat(starmap(_labels, facts.items())).unique()
    answers = {name: _answers(branch) for name, branch in branches.items()}
    names = {name: _names(branch, labels) for name, branch in branches.items()}
    table = across_languages(answers, names, seed=0, known_share=known_share, n_rounds=_ROUNDS)
    alone = known_in_one_alone(answers, known_share)
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


def _answers(branch: PastBranch) -> pl.DataFrame:
    ids = (pl.col(column).cast(pl.String) for column in FACT)
    return branch.matched_answers().select(*ids, "key", "correct")


def _names(branch: PastBranch, labels: pl.DataFrame) -> pl.DataFrame:
    """The names of objects in all languages, as lemmas by the rules of the branch's language."""
    normaliser = Normaliser(branch.artifacts["matched"].recipe.fields["pipeline"])
    lemmas = labels.with_columns(key=normaliser.normalise(labels["text"]))
    return lemmas.with_columns(key(pl.col("key"))).drop("text")
