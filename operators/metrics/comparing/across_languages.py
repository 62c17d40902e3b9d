"""The same facts in several languages: what is known in each, and whether answers agree."""

from collections.abc import Mapping
from itertools import permutations

import polars as pl

from factsweep.operators.matching.lemmas import contains, key_length
from factsweep.operators.metrics.comparing.pairing import FACT
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.rows import pair_terms
from factsweep.operators.schemas import schema

ACROSS = schema("""
    language text, other text, n_facts int, n_known int, n_shared int, sharing float,
    sharing_low float, sharing_high float, consist float, consist_low float, consist_high float
""")


def entities(answers: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    r"""The answers with the column entity_id: the object of the relation that each names.

    `names` has a row per label or alias of an object, in any language (relation_id, entity_id,
    key); keys are made by the rules of the answers' language. Of several names that an answer
    contains, the longest counts; null: none, or several entities have a name of that length.
    """
    asked = answers.select("relation_id", "key").drop_nulls().unique()
    known = names.select("relation_id", "entity_id", name="key").drop_nulls().unique()
    found = asked.join(known, on="relation_id").filter(contains(pl.col("key"), pl.col("name")))
    longest = found.with_columns(n=key_length(pl.col("name"))).filter(
        pl.col("n") == pl.col("n").max().over("relation_id", "key")
    )
    one = longest.group_by("relation_id", "key").agg(
        entity_id=pl.when(pl.col("entity_id").n_unique() == 1).then(pl.col("entity_id").first())
    )
    return answers.join(one, on=["relation_id", "key"], how="left", maintain_order="left")


def consist_terms(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """For each fact of both languages the share of pairs of prompts that name the same entity.

    One prompt of a pair is in each language. An answer without an entity agrees with none.

    >>> row = {"relation_id": "P36", "pair_id": "P36.Q40"}
    >>> german = pl.DataFrame([{**row, "entity_id": "Q1741"}, {**row, "entity_id": None}])
    >>> consist_terms(german, german)["numerator"].to_list()
    [0.25]
    """
    same = _pairs_of(first, second, *FACT, "entity_id")  # nulls join nothing
    same = same.group_by(FACT).agg(n_same=pl.sum("n_pairs"))
    facts = _pairs_of(first, second, *FACT).join(same, on=FACT, how="left")
    share = pl.col("n_same").fill_null(0) / pl.col("n_pairs")
    return pair_terms(facts, share.sum(), pl.lit(1.0))


def _pairs_of(first: pl.DataFrame, second: pl.DataFrame, *same: str) -> pl.DataFrame:
    """How many pairs of rows, one of each table, have the same in these columns: n_pairs."""
    one, other = (each.group_by(same).len("n") for each in (first, second))
    n_pairs = pl.col("n").cast(pl.Int64) * pl.col("n_right")
    return one.join(other, on=same).select(*same, n_pairs=n_pairs)


def known(answers: pl.DataFrame, known_share: float = 0.5) -> pl.DataFrame:
    """Each fact, with whether so large a share of its prompts or more is answered right."""
    return answers.group_by(FACT, maintain_order=True).agg(
        known=pl.col("correct").mean() >= known_share
    )


def sharing_terms(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """For each fact of both languages whether it is known in the first, and then in the second.

    Both tables are those of `known`; numerator: in both, denominator: in the first.
    """
    facts = first.join(second.select(*FACT, other="known"), on=FACT)
    both = (pl.col("known") & pl.col("other")).sum()
    return pair_terms(facts, both, pl.col("known").sum())


def across_languages(
    languages: Mapping[str, pl.DataFrame],
    *,
    seed: int,
    known_share: float = 0.5,
    n_rounds: int = 1000,
) -> pl.DataFrame:
    """Every ordered pair of languages (columns: ACROSS), on the facts that both asked.

    `languages` has the answers in each (relation_id, pair_id, entity_id, correct). `sharing` is the
    share of what is known in the language that is known in the other, `consist` the mean over facts
    of `consist_terms`, both with 95 % intervals of facts drawn within their relations. Null:
    nothing is known, or no fact is in both.

    Source: BELIEF, section 6.3, for sharing, and section 2.3 for consistency, over languages in
    place of models and templates.
    """
    states = {name: known(answers, known_share) for name, answers in languages.items()}
    rows: list[tuple[object, ...]] = []
    for name, other in permutations(languages, 2):
        shared = sharing_terms(states[name], states[other])
        n_shared, n_known = (int(shared[each].sum()) for each in ("numerator", "denominator"))
        agreed = consist_terms(languages[name], languages[other])
        found = (
            bootstrap_ratio(each, seed=seed, n_rounds=n_rounds).overall for each in (shared, agreed)
        )
        values = (value for estimate in found for value in estimate)
        rows.append((name, other, shared.height, n_known, n_shared, *values))
    return pl.DataFrame(rows, ACROSS, orient="row")


def known_in_one_alone(
    languages: Mapping[str, pl.DataFrame], known_share: float = 0.5
) -> pl.DataFrame:
    """The facts that all languages asked and one alone knows: relation_id, pair_id, language."""
    states = [
        known(answers, known_share).with_columns(language=pl.lit(name))
        for name, answers in languages.items()
    ]
    if not states:
        return pl.DataFrame(schema=dict.fromkeys((*FACT, "language"), pl.String))
    everywhere = pl.len().over(FACT) == len(states)
    alone = pl.col("known").sum().over(FACT) == 1
    rows = pl.concat(states).filter(everywhere & alone & pl.col("known"))
    return rows.select(*FACT, "language").sort("language", *FACT)
