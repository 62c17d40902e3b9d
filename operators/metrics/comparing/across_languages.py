"""The same facts in several languages: what is known in each, and whether answers agree."""

from collections.abc import Mapping, Sequence
from itertools import permutations

import polars as pl

from factsweep.operators.matching.lemmas import contains, matches
from factsweep.operators.metrics.comparing.along import HALF
from factsweep.operators.metrics.comparing.paired import FACT
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.rows import pair_terms
from factsweep.operators.schemas import schema

ACROSS = schema("""
    language text, other text, n_facts int, n_known int, n_shared int, sharing float,
    sharing_low float, sharing_high float, consist float, consist_low float, consist_high float
""")
_ANSWER = ("relation_id", "key")


def named_entities(answers: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    r"""The entities whose names answers contain: relation_id, key, language, entity_id.

    `names` has a row per name of an object of a relation (relation_id, entity_id, language, key);
    its keys, in whatever language, are made by the rules of the answers' language.
    """
    distinct = answers.select(_ANSWER).drop_nulls().unique()
    columns = ("relation_id", "entity_id", "language")
    keyed_names = names.select(*columns, name="key").drop_nulls().unique()
    pairs = distinct.join(keyed_names, on="relation_id")
    hits = pairs.filter(contains(pl.col("key"), pl.col("name")))
    return hits.select(*_ANSWER, "language", "entity_id").unique()


def with_entities(
    answers: pl.DataFrame, entities: pl.DataFrame, languages: Sequence[str]
) -> pl.DataFrame:
    """The answers with the column `entities`: the ids of entities named in one of these languages.

    `entities` is the table of `named_entities`.
    """
    in_these = entities.filter(pl.col("language").is_in(languages))
    lists = in_these.group_by(_ANSWER).agg(entities=pl.col("entity_id").unique())
    joined = answers.join(lists, on=_ANSWER, how="left", maintain_order="left")
    return joined.with_columns(pl.col("entities").fill_null(pl.lit([], pl.List(pl.String))))


def consist_terms(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    r"""For each fact of both languages the share of pairs of prompts whose answers agree, over 1.

    One prompt of a pair is in each language. Two answers agree if they name the same entity, of
    several any. Where neither names an entity they agree if one text contains the other, as in
    Consist; an answer that names one and an answer that names none do not agree. Both tables have
    the columns relation_id, pair_id, key and entities.

    >>> row = {"relation_id": "P36", "pair_id": "P36.Q40"}
    >>> german = pl.DataFrame([
    ...     {**row, "key": "\x1fin\x1fwien\x1f", "entities": ["Q1741"]},
    ...     {**row, "key": "\x1fja\x1f", "entities": []},
    ... ], schema_overrides={"entities": pl.List(pl.String)})
    >>> consist_terms(german, german)["numerator"].to_list()
    [0.5]
    """
    shares = [pl.DataFrame(schema=dict.fromkeys(FACT, pl.String) | {"share": pl.Float64})]
    by_relation = second.partition_by("relation_id", as_dict=True)
    for relation, rows in first.partition_by("relation_id", as_dict=True).items():
        if relation in by_relation:
            shares.append(_agreement(rows, by_relation[relation]))
    return pair_terms(pl.concat(shares), pl.col("share").sum(), pl.lit(1.0))


def _agreement(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The share of agreeing pairs of answers of each fact of a relation: FACT and share."""
    left, right = (
        answers.group_by(*FACT, "key").agg(pl.first("entities"), n=pl.len().cast(pl.Int64))
        for answers in (first, second)
    )
    pairs = left.join(right, on=FACT)
    entities, entities_right = pl.col("entities"), pl.col("entities_right")
    has_same = entities.list.set_intersection(entities_right).list.len() > 0
    has_none = (entities.list.len() == 0) & (entities_right.list.len() == 0)
    agree = has_same | (has_none & matches(pl.col("key"), pl.col("key_right")))
    n_pairs = pl.col("n") * pl.col("n_right")
    share = (n_pairs * agree).sum() / n_pairs.sum()
    return pairs.group_by(FACT).agg(share=share).with_columns(pl.col(FACT).cast(pl.String))


def known_facts(answers: pl.DataFrame, known_share: float = HALF) -> pl.DataFrame:
    """Each fact, with is_known: whether more than this share of its prompts is answered rightly."""
    return answers.group_by(FACT, maintain_order=True).agg(
        is_known=pl.col("correct").mean() > known_share
    )


def sharing_terms(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """For each fact of both languages whether it is known in the first, and then in the second.

    Both tables have the columns of `known_facts`; numerator: in both, denominator: in the first.
    """
    facts = first.join(second, on=FACT)
    in_both = (pl.col("is_known") & pl.col("is_known_right")).sum()
    return pair_terms(facts, in_both, pl.col("is_known").sum())


def across_languages(
    answers_by_language: Mapping[str, pl.DataFrame],
    names_by_language: Mapping[str, pl.DataFrame],
    *,
    seed: int,
    known_share: float = HALF,
    n_rounds: int = 1000,
) -> pl.DataFrame:
    """Every ordered pair of languages (columns: ACROSS), on the facts that both asked.

    For each language there are its answers (relation_id, pair_id, key, correct), and the names of
    objects in all languages as `named_entities` reads them; a pair of languages uses the names in
    these two. `sharing` is the share of the facts known in the language that is known in the other,
    `consist` the mean over facts of `consist_terms`, both with 95 % intervals of facts drawn within
    their relations. Null: nothing is known, or no fact is in both.

    Source: BELIEF, section 6.3, for sharing, and section 2.3 for consistency, over languages in
    place of models and templates.
    """
    knowledge = {name: known_facts(rows, known_share) for name, rows in answers_by_language.items()}
    entities = {
        name: named_entities(rows, names_by_language[name])
        for name, rows in answers_by_language.items()
    }
    table_rows: list[tuple[object, ...]] = []
    for pair in permutations(answers_by_language, 2):
        shared = sharing_terms(*(knowledge[name] for name in pair))
        n_shared, n_known = (int(shared[column].sum()) for column in ("numerator", "denominator"))
        answers = (with_entities(answers_by_language[name], entities[name], pair) for name in pair)
        estimates = (
            bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds).overall
            for terms in (shared, consist_terms(*answers))
        )
        numbers = (number for estimate in estimates for number in estimate)
        table_rows.append((*pair, shared.height, n_known, n_shared, *numbers))
    return pl.DataFrame(table_rows, ACROSS, orient="row")


def known_in_one_alone(
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
