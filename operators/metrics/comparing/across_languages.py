"""The same facts in several languages: the known ones in each, and whether answers agree."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Unpack

import polars as pl

from factsweep.operators.matching.lemmas import contains, matches
from factsweep.operators.metrics.comparing.curve import HALF
from factsweep.operators.metrics.comparing.paired import FACT
from factsweep.operators.metrics.shared.bootstrap import Draws, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import pair_terms
from factsweep.operators.schemas import schema

ACROSS = schema("""
    language text, other text, n_facts int, n_known int, n_shared int, sharing float,
    sharing_low float, sharing_high float, consist float, consist_low float, consist_high float
""")
_ANSWER = ("relation_id", "key")


def compare_languages(
    answers_by_language: Mapping[str, pl.DataFrame],
    names_by_language: Mapping[str, pl.DataFrame],
    *,
    known_share: float = HALF,
    **draws: Unpack[Draws],
) -> pl.DataFrame:
    """Compare every ordered pair of languages (columns: ACROSS) on the facts that both asked.

    Answers have relation_id, pair_id, key and correct; names (relation_id, entity_id, language,
    key) are those of objects in all languages, keyed by the rules of the answers' language. A pair
    of languages uses the names in these two.

    `sharing` is the share of the facts known in the language that is known in the other; a fact is
    known if more than `known_share` of its prompts are right. `consist` is the mean over facts of
    the share of pairs of prompts, one in each language, whose answers agree: they name the same
    entity, of several any; where neither names an entity, one text contains the other. Intervals
    are of 95 %, of facts drawn within their relations. Null: no fact is known, or shared.

    Source: BELIEF, section 6.3, for sharing, and section 2.3 for consistency, over languages in
    place of models and templates.
    """
    facts = {name: known_facts(rows, known_share) for name, rows in answers_by_language.items()}
    entities = {
        name: _find_entities(rows, names_by_language[name])
        for name, rows in answers_by_language.items()
    }
    in_both = (pl.col("is_known") & pl.col("is_known_right")).sum()
    table_rows: list[tuple[object, ...]] = []
    for pair in permutations(answers_by_language, 2):
        first_answers, second_answers = (
            _add_entities(answers_by_language[name], entities[name], pair) for name in pair
        )
        shared_facts = facts[pair[0]].join(facts[pair[1]], on=FACT)
        sharing = pair_terms(shared_facts, in_both, pl.col("is_known").sum())
        n_shared, n_known = (int(sharing[column].sum()) for column in ("numerator", "denominator"))
        estimates = (
            bootstrap_ratio(terms, **draws).overall
            for terms in (sharing, _consist_terms(first_answers, second_answers))
        )
        numbers = (number for estimate in estimates for number in estimate)
        table_rows.append((*pair, sharing.height, n_known, n_shared, *numbers))
    return pl.DataFrame(table_rows, ACROSS, orient="row")


def known_facts(answers: pl.DataFrame, known_share: float = HALF) -> pl.DataFrame:
    """Each fact, with is_known: whether more than this share of its prompts is answered rightly."""
    return answers.group_by(FACT, maintain_order=True).agg(
        is_known=pl.col("correct").mean() > known_share
    )


def facts_known_in_one_language(
    answers_by_language: Mapping[str, pl.DataFrame], known_share: float = HALF
) -> pl.DataFrame:
    """The facts that all languages asked and one alone knows: relation_id, pair_id, language."""
    tables = [
        known_facts(answers, known_share).with_columns(language=pl.lit(name))
        for name, answers in answers_by_language.items()
    ]
    if not tables:
        return pl.DataFrame(schema=dict.fromkeys((*FACT, "language"), pl.String))
    in_all = pl.len().over(FACT) == len(tables)
    in_one = pl.col("is_known").sum().over(FACT) == 1
    rows = pl.concat(tables).filter(in_all & in_one & pl.col("is_known"))
    return rows.select(*FACT, "language").sort("language", *FACT)


def _find_entities(answers: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """The entities whose names answers contain: relation_id, key, language, entity_id."""
    distinct = answers.select(_ANSWER).drop_nulls().unique()
    columns = ("relation_id", "entity_id", "language")
    keyed_names = names.select(*columns, name="key").drop_nulls().unique()
    pairs = distinct.join(keyed_names, on="relation_id")
    hits = pairs.filter(contains(pl.col("key"), pl.col("name")))
    return hits.select(*_ANSWER, "language", "entity_id").unique()


def _add_entities(
    answers: pl.DataFrame, entities: pl.DataFrame, languages: Sequence[str]
) -> pl.DataFrame:
    """The answers with the ids of the `entities` that they name in one of these languages."""
    named_entities = entities.filter(pl.col("language").is_in(languages))
    lists = named_entities.group_by(_ANSWER).agg(entities=pl.col("entity_id").unique())
    joined = answers.join(lists, on=_ANSWER, how="left", maintain_order="left")
    return joined.with_columns(pl.col("entities").fill_null(pl.lit([], pl.List(pl.String))))


def _consist_terms(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The share of agreeing pairs of prompts of each fact of both languages, over 1 (TERMS)."""
    shares = [pl.DataFrame(schema=dict.fromkeys(FACT, pl.String) | {"share": pl.Float64})]
    entities, other_entities = pl.col("entities"), pl.col("entities_right")
    has_same = entities.list.set_intersection(other_entities).list.len() > 0
    has_none = (entities.list.len() == 0) & (other_entities.list.len() == 0)
    agree = has_same | (has_none & matches(pl.col("key"), pl.col("key_right")))
    n_pairs = pl.col("n") * pl.col("n_right")
    by_relation = second.partition_by("relation_id", as_dict=True)
    for relation, rows in first.partition_by("relation_id", as_dict=True).items():
        if relation not in by_relation:
            continue
        first_counts, second_counts = (
            answers.group_by(*FACT, "key").agg(pl.first("entities"), n=pl.len().cast(pl.Int64))
            for answers in (rows, by_relation[relation])
        )
        pairs = first_counts.join(second_counts, on=FACT).group_by(FACT)
        share = pairs.agg(share=(n_pairs * agree).sum() / n_pairs.sum())
        shares.append(share.with_columns(pl.col(FACT).cast(pl.String)))
    return pair_terms(pl.concat(shares), pl.col("share").sum())
