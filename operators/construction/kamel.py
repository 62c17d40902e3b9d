"""Rebuild KAMEL: triples and labels → queries with sets of answers, in three splits.

Source: KAMEL, section 3.1, "Dataset Creation".
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

import polars as pl

from factsweep.operators import seeds
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import DATE, NUMBER, SPLITS, facts_of, is_literal
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty, fit_schema, schema

# An object_id is an entity, or a literal's type: XMLSchema#dateTime or XMLSchema#decimal. Its value
# is then as Wikidata writes it: +1949-12-16T00:00:00Z, +3.
TRIPLES = schema("relation_id text, subject_id text, object_id text, value text")
LABELS = schema("entity_id text, labels text[]")  # the main label first


class Sizes(NamedTuple):
    """How many queries of a relation go into each split."""

    train: int = 1000
    dev: int = 200
    test: int = 200


PAPER_SIZES = Sizes()


class BuiltSet(NamedTuple):
    """The set, and its omissions: relation_id, unit (triple, query), reason, count."""

    facts: Facts
    dropped: pl.DataFrame


def build(
    triples: pl.DataFrame,
    labels: pl.DataFrame,
    questions: Mapping[str, str],
    *,
    seed: int,
    sizes: Sizes = PAPER_SIZES,
    max_answers: int = 10,
    relation_labels: Mapping[str, str] | None = None,
) -> BuiltSet:
    """Make a set from triples (TRIPLES) and the labels of their entities (LABELS).

    `questions` has one question per relation, with [S] for the subject; other relations are left
    out. In this order are dropped: triples without a label, literals that are no date and no
    integer, triples whose object is named in the subject (`is_named_in`); queries of more than
    `max_answers`; relations of fewer queries than all splits take together. The rest is drawn by
    seed.

    Raises:
        InputError: a missing column, or no relation is left.
    """
    triples, labels = fit_schema(triples, TRIPLES, "triples"), fit_schema(labels, LABELS, "labels")
    triples = triples.filter(pl.col("relation_id").is_in(list(questions))).unique()
    triples_named = _add_names(triples, labels)
    unlabelled = pl.col("labels").is_null()
    triples_named = add_reasons(
        triples_named,
        subject_without_label=pl.col("subjects").is_null(),
        no_date_and_no_integer=unlabelled & is_literal(pl.col("object_id")),
        object_without_label=unlabelled,
        named_in_subject=is_named_in(
            pl.col("labels").list.first(), pl.col("subjects").list.first()
        ),
    )
    queries = _queries(triples_named.filter(pl.col("reason").is_null()))
    n_answers = pl.col("objects").list.len()
    queries = add_reasons(queries, too_many_answers=n_answers > max_answers)
    queries_drawn = add_reasons(
        split_by_seed(queries.filter(pl.col("reason").is_null()), sizes, seed),
        relation_too_small=pl.len().over("relation_id") < sum(sizes),
        not_drawn=pl.col("split").is_null(),
    )
    queries = pl.concat([queries_drawn, queries.drop_nulls("reason")], how="diagonal")
    pairs = queries.filter(pl.col("reason").is_null()).sort("relation_id", "split", "place")
    if pairs.is_empty():
        raise InputError(
            f"no relation has {sum(sizes)} queries with at most {max_answers} answers; "
            "give more triples or ask for smaller splits."
        )
    return BuiltSet(
        facts_of(pairs.select(empty("pairs").columns), questions, relation_labels),
        count_left_out({"triple": triples_named, "query": queries}),
    )


def is_named_in(object_label: pl.Expr, subject_label: pl.Expr) -> pl.Expr:
    """Whether the object's label is among the n-grams, …, 1-grams of words of the subject's.

    n is the number of words in the object's label: a run of whole words is equal to it. Upper and
    lower case are the same; the paper does not say.
    """

    def words(label: pl.Expr) -> pl.Expr:
        text = label.str.to_lowercase().str.replace_all(r"\s+", " ").str.strip_chars()
        return pl.concat_str(pl.lit(" "), text, pl.lit(" "))

    return words(subject_label).str.contains(words(object_label), literal=True)


def year_labels(value: pl.Expr) -> pl.Expr:
    """A date's labels, the year first; null where it is no date.

    Years before Christ are written as Wikidata's JSON has them: -0044 is 44 BC.

    >>> values = ["+1949-12-16T00:00:00Z", "+1949-00-00T00:00:00Z", "-0044-03-15T00:00:00Z", "?"]
    >>> pl.DataFrame({"value": values}).select(year_labels(pl.col("value"))).to_series().to_list()
    [['1949', '16 December 1949'], ['1949'], ['44 BC', '15 March 44 BC'], None]
    """
    from babel.dates import get_month_names  # slow to import

    parts = value.str.extract_groups(r"^([+-]?)0*([0-9]+)-([0-9]{2})-([0-9]{2})")
    sign, digits, month, day = (parts.struct.field(str(place)) for place in range(1, 5))
    era = pl.when(sign == "-").then(pl.lit(" BC")).otherwise(pl.lit(""))
    year = pl.concat_str(digits, era)
    months = get_month_names("wide", locale="en")
    names = {f"{number:02d}": name for number, name in months.items()}
    month = month.replace_strict(names, default=None, return_dtype=pl.String)
    date = pl.concat_str(day.str.strip_chars_start("0"), month, year, separator=" ")
    date = pl.when(day != "00").then(date)
    return pl.when(digits.is_not_null()).then(pl.concat_list(year, date).list.drop_nulls())


def integer_labels(value: pl.Expr) -> pl.Expr:
    """A number's label; null where it is no integer.

    >>> values = pl.DataFrame({"value": ["+3", "12.0", "-7", "2.5", "3 m"]})
    >>> values.select(integer_labels(pl.col("value"))).to_series().to_list()
    [['3'], ['12'], ['-7'], None, None]
    """
    digits = value.str.extract(r"^\+?(-?[0-9]+)(?:\.0*)?$")
    return pl.when(digits.is_not_null()).then(pl.concat_list(digits))


def split_by_seed(queries: pl.DataFrame, sizes: Sizes, seed: int) -> pl.DataFrame:
    """Draw each relation's splits: adds `place` (in a seeded order) and `split`, null for the rest.

    Needs relation_id and pair_id. A query's place depends on the seed and its id alone.
    """
    keys = seeds.keys(seed, "split", queries["pair_id"])
    random = pl.Series("random", keys, pl.UInt64)
    place = pl.struct("random", "pair_id").rank("ordinal").over("relation_id").cast(pl.Int64) - 1
    ends = zip(SPLITS, accumulate(sizes), strict=True)
    split = pl.coalesce(pl.when(place < end).then(pl.lit(name)) for name, end in ends)
    return queries.with_columns(random).with_columns(place=place, split=split).drop("random")


def unite_labels(labels: pl.DataFrame) -> pl.DataFrame:
    """The labels (LABELS) with one row per entity: of one that stands twice, the labels of both.

    >>> rows = [("Q90", ["Paris"]), ("Q84", ["London"]), ("Q90", ["Paris", "Lutetia"])]
    >>> unite_labels(pl.DataFrame(rows, LABELS, orient="row")).rows()
    [('Q90', ['Paris', 'Lutetia']), ('Q84', ['London'])]
    """
    return labels.group_by("entity_id", maintain_order=True).agg(
        pl.col("labels").explode().drop_nulls().unique(maintain_order=True)
    )


def add_reasons(rows: pl.DataFrame, **reasons: pl.Expr) -> pl.DataFrame:
    """The rows with `reason`: the first by which a row is left out; null: it is used.

    >>> add_reasons(pl.DataFrame({"n": [1, 5]}), too_many=pl.col("n") > 2)["reason"].to_list()
    [None, 'too_many']
    """
    names = (pl.when(has_reason).then(pl.lit(name)) for name, has_reason in reasons.items())
    return rows.with_columns(reason=pl.coalesce(*names))


def count_left_out(rows: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Count the rows with a reason: relation_id, unit (the key of their table), reason, count.

    Tables have relation_id and reason, which is null where a row was used.

    >>> triples = pl.DataFrame({"relation_id": ["P36", "P36"], "reason": ["no_label", None]})
    >>> count_left_out({"triple": triples}).rows()
    [('P36', 'triple', 'no_label', 1)]
    """
    counts = [
        table.drop_nulls("reason")
        .group_by("relation_id", unit=pl.lit(unit), reason="reason")
        .agg(count=pl.len().cast(pl.Int64))
        for unit, table in rows.items()
    ]
    return pl.concat(counts).sort("relation_id", "unit", "reason")


def _add_names(triples: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """The triples with `subjects` (the subject's main label) and `labels` (the object's)."""
    names = unite_labels(labels).filter(pl.col("labels").list.len() > 0)
    subjects = names.select(subject_id="entity_id", subjects=pl.col("labels").list.head(1))
    rows = triples.join(subjects, on="subject_id", how="left")
    rows = rows.join(names, left_on="object_id", right_on="entity_id", how="left")
    return rows.with_columns(
        labels=pl.when(pl.col("object_id") == DATE)
        .then(year_labels(pl.col("value")))
        .when(pl.col("object_id") == NUMBER)
        .then(integer_labels(pl.col("value")))
        .otherwise("labels")
    )


def _queries(triples: pl.DataFrame) -> pl.DataFrame:
    # Two dates of one year are one answer, with the labels of both.
    answers = (
        triples.with_columns(first=pl.col("labels").list.first())
        .sort("relation_id", "subject_id", "object_id", "first", "value")
        .group_by("relation_id", "subject_id", "object_id", "first", maintain_order=True)
        .agg("subjects", pl.col("labels").explode().unique(maintain_order=True))
    )
    queries = answers.group_by("relation_id", "subject_id", maintain_order=True).agg(
        pl.col("subjects").first().list.first(), objects=pl.struct("object_id", "labels")
    )
    return queries.with_columns(pair_id=pl.format("{}.{}", "relation_id", "subject_id"))
