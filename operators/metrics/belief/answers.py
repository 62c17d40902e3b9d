"""BELIEF's metrics of answers, and the condensed answers of a few relations.

`CondensedAnswers` has a few rows for each pair and template. It is computed by relation and
concatenated, so that memory holds the answers of a few relations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Unpack, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.matching.lemmas import contains, key_length
from factsweep.operators.metrics.shared.bootstrap import BootstrapResult, Draws, bootstrap_ratios
from factsweep.operators.metrics.shared.rows import TERMS, Counts, Metric, count_answers, pair_terms
from factsweep.operators.schemas import schema
from factsweep.operators.seeds import generator

Draw = Literal["template", "pair"]
DRAWS: tuple[Draw, ...] = get_args(Draw)
By = Literal["match", "equality"]
RATES = schema("relation_id text, template_id text, n_names int, n_correct int, n_pairs int")
PAIRS = schema("relation_id text, pair_id text, n int")
NAMED_TERMS = schema(
    "metric text, relation_id text, pair_id text, numerator float, denominator float"
)
_PAIR = ("relation_id", "pair_id")
_TEMPLATE = ("relation_id", "template_id")
_COMPARISONS_PER_BLOCK = 4_000_000


def acc_at_1_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair the share of its prompts that are answered correctly (0 to 1), over 1.

    A pair without any answer is left out.

    Source: BELIEF, section 2.2, "Average accuracy". The paper averages N = 50,000 random draws;
    this is their expected value, computed exactly.

    >>> ids = {"relation_id": ["P1"] * 3, "pair_id": ["t1", "t1", "t2"]}
    >>> answers = pl.DataFrame({**ids, "correct": [True, False, True]})
    >>> acc_at_1_terms(answers)["numerator"].to_list()
    [0.5, 1.0]
    """
    return pair_terms(answers, pl.mean("correct"))


def one_word_ratio_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair its number of answers of exactly one lemma, over its number of answers.

    Source: BELIEF-ICL, section 5.3 ("one-word generation"); counted here on lemmas, so that
    "Nanjing." is one word. An empty answer is not one word.

    >>> ids = {"relation_id": ["P1"] * 4, "pair_id": ["t1", "t1", "t1", "t2"]}
    >>> answers = pl.DataFrame({**ids, "n_lemmas": [1, 0, 3, 1]})
    >>> one_word_ratio_terms(answers).select("numerator", "denominator").rows()
    [(1.0, 3.0), (1.0, 1.0)]
    """
    return pair_terms(answers, (pl.col("n_lemmas") == 1).sum(), pl.len())


def coverage_oracle_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair a 1 if any of its answers is correct, over 1.

    Source: BELIEF, section 7, Table 7, "Oracle".

    >>> ids = {"relation_id": ["P1"] * 4, "pair_id": ["t1", "t1", "t2", "t2"]}
    >>> answers = pl.DataFrame({**ids, "correct": [True, False, False, False]})
    >>> coverage_oracle_terms(answers)["numerator"].to_list()
    [1.0, 0.0]
    """
    return pair_terms(answers, pl.col("correct").any())


def coverage_maximum_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair a 1 if it is known under its relation's best template, over 1.

    The best template of a relation is the one with the most correct pairs, and of several the first
    by its id; a pair is correct under a template if any of its subject names is answered correctly.
    Bootstrap rounds keep the templates that are best in the sample: chosen again in each round,
    they would raise the interval, even above the value.

    Source: BELIEF, section 7, Table 7, "Maximum", with footnote 16 (the best subject name).

    >>> pairs = {"relation_id": ["P1"] * 4, "pair_id": ["t1", "t1", "t2", "t3"]}
    >>> hits = {"template_id": ["a", "b", "b", "a"], "correct": [True, True, True, False]}
    >>> coverage_maximum_terms(pl.DataFrame(pairs | hits))["numerator"].to_list()
    [1.0, 1.0, 0.0]
    """
    n_right = pl.col("pair_id").filter("correct").n_unique()
    relation, template = (pl.col(name).cast(pl.String) for name in _TEMPLATE)
    templates = answers.group_by(_TEMPLATE).agg(n_right=n_right)
    ranked = templates.sort(relation, "n_right", template, descending=[False, True, False])
    best = ranked.unique("relation_id", keep="first", maintain_order=True)
    rows = answers.join(best, on=_TEMPLATE, how="left")
    right = pl.col("correct") & pl.col("n_right").is_not_null()
    return pair_terms(rows, right.any())


def consist_terms(
    answers: pl.DataFrame, *, by: By = "match", within: Sequence[str] = ()
) -> pl.DataFrame:
    r"""Give each pair the share (0 to 1) of its unordered prompt pairs whose answers match, over 1.

    `by` is "match" (one answer contains the other) or "equality" (encoder models: the same token).
    An empty answer matches nothing. Pairs of a single answer are left out. Only prompts that agree
    in the columns of `within` are compared.

    Source: BELIEF, section 2.3, equation 1 (which sums over ordered pairs, but divides by the
    number of unordered ones), and BELIEF-ICL, section 3.2, item 2.

    >>> ids = {"relation_id": ["P1"] * 3, "pair_id": ["t1"] * 3}
    >>> keys = ["\x1fguitar\x1f", "\x1fa\x1fguitar\x1f", "\x1fpiano\x1f"]
    >>> answers = pl.DataFrame({**ids, "key": keys})
    >>> [consist_terms(answers, by=by)["numerator"].item() for by in ("match", "equality")]
    [0.3333333333333333, 0.0]
    """
    return share_of_matches(match_counts(answers, by=by, within=within))


def share_of_matches(counts: pl.DataFrame) -> pl.DataFrame:
    """Turn the counts of `match_counts` into terms: the matching share of each pair, over 1."""
    compared = counts.filter(pl.col("n_compared") > 0)
    return pair_terms(compared, pl.sum("n_matches") / pl.sum("n_compared"))


def match_counts(
    answers: pl.DataFrame, *, by: By = "match", within: Sequence[str] = ()
) -> pl.DataFrame:
    """Count for each pair the unordered prompt pairs, and those whose answers match.

    Columns: relation_id, pair_id, n_matches, n_compared; arguments as of `consist_terms`.
    """
    columns, n = (*_PAIR, *within), pl.col("n")
    counts = answers.group_by(*columns, "key").agg(n=pl.len().cast(pl.Int64))
    groups = counts.select(columns).unique().with_row_index("cell")
    counts = counts.join(groups, on=columns, nulls_equal=True).select(
        "cell", "n", key=pl.col("key").cast(pl.String)
    )
    equal = counts.select("cell", n_matches=n * (n - 1) // 2 * pl.col("key").is_not_null())
    matches = pl.concat([equal, *(_containments(counts) if by == "match" else ())])
    n_matches = matches.group_by("cell").agg(pl.sum("n_matches"))
    n_compared = counts.group_by("cell").agg(n_compared=pl.sum("n") * (pl.sum("n") - 1) // 2)
    by_pair = groups.join(n_matches, on="cell").join(n_compared, on="cell").group_by(_PAIR)
    totals = by_pair.agg(pl.sum("n_matches", "n_compared"))
    return totals.with_columns(pl.col(_PAIR).cast(pl.String)).sort(_PAIR)


def _containments(counts: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the prompt pairs of groups in which an answer contains a shorter one, in blocks."""
    answers = counts.drop_nulls("key").with_columns(n_lemmas=key_length(pl.col("key")))
    n_compared = pl.len().over("cell").cast(pl.Int64).cum_sum()
    blocks = answers.with_columns(block=n_compared // _COMPARISONS_PER_BLOCK)
    for block in blocks.partition_by("block", include_key=False):
        pairs = block.join(answers, on="cell", suffix="_shorter")
        longer = pairs.filter(pl.col("n_lemmas") > pl.col("n_lemmas_shorter"))
        hits = longer.filter(contains(pl.col("key"), pl.col("key_shorter")))
        yield hits.select("cell", n_matches=pl.col("n") * pl.col("n_shorter"))


class Fluctuation(NamedTuple):
    """Range (max − min) and population SD of the drawn accuracies; None without answers."""

    range: float | None
    sd: float | None


def fluctuation(
    answers: pl.DataFrame, *, draw: Draw, n_draws: int = 50_000, seed: int
) -> Fluctuation:
    """Give range and SD (accuracy, 0 to 1) over random choices of one prompt per pair.

    `draw="template"` draws one template per relation, then a subject name per pair; `draw="pair"`
    draws a prompt for each pair by itself.

    Source: BELIEF, section 2.2, "Fluctuation of accuracy". Its text describes `pair`, but its
    figures (SD 0.0350 for 24,643 pairs) need `template`: independent draws give 0.003 at most.

    >>> answers = pl.DataFrame({
    ...     "relation_id": ["P1"] * 4,
    ...     "pair_id": ["t1", "t1", "t2", "t2"],
    ...     "template_id": ["a", "b", "a", "b"],
    ...     "correct": [True, False, True, False],
    ... })
    >>> found = fluctuation(answers, draw="template", n_draws=1000, seed=1)
    >>> found.range, round(found.sd, 2)
    (1.0, 0.5)
    """
    condensed = condense_terms(answers, {"acc_at_1": acc_at_1_terms(answers)})
    return condensed.fluctuation(draw, n_draws=n_draws, seed=seed)


def pair_draws(terms: pl.DataFrame, *, n_draws: int, seed: int) -> NDArray[np.float64]:
    """Draw a prompt per pair, from the terms of Acc@1: one binomial per distinct rate."""
    if terms.is_empty():
        return np.empty(0)
    rates = terms.group_by(rate="numerator").agg(n_pairs=pl.len()).sort("rate")
    rng, n_correct = generator(seed, "draw=pair"), np.zeros(n_draws, np.int64)
    for rate, n_pairs in rates.iter_rows():
        n_correct += rng.binomial(n_pairs, rate, n_draws)
    return n_correct / terms.height


def template_rates(answers: pl.DataFrame) -> pl.DataFrame:
    """Count the pairs by their right answers and names, under each template (RATES)."""
    cells = answers.group_by(*_TEMPLATE, "pair_id").agg(
        n_names=pl.len(), n_correct=pl.sum("correct")
    )
    sizes = cells.group_by(*_TEMPLATE, "n_names", "n_correct").agg(n_pairs=pl.len())
    return sizes.cast(RATES)


def template_draws(rates: pl.DataFrame, *, n_draws: int, seed: int) -> NDArray[np.float64]:
    """Draw a template per relation, then a subject name per pair, from `template_rates`.

    A pair without an answer under the drawn template is left out of that draw.
    """
    if rates.is_empty():
        return np.empty(0)
    shares = rates.with_columns(rate=pl.col("n_correct") / pl.col("n_names"))
    distinct = shares.group_by(*_TEMPLATE, "rate").agg(pl.sum("n_pairs")).sort(*_TEMPLATE, "rate")
    n_correct, n_pairs = np.zeros((2, n_draws), np.int64)
    for relation in distinct.partition_by("relation_id", maintain_order=True):
        rng = generator(seed, "draw=template", relation["relation_id"][0])
        template, sizes = relation["template_id"].rle_id().to_numpy(), relation["n_pairs"]
        n_asked = np.bincount(template, weights=sizes).astype(np.int64)
        drawn_templates = rng.integers(len(n_asked), size=n_draws)
        n_drawn = np.bincount(drawn_templates, minlength=len(n_asked))
        ends = np.cumsum(n_drawn)
        by_template = np.zeros(n_draws, np.int64)
        for place, rate, n in zip(template, relation["rate"], sizes, strict=True):
            draws = slice(ends[place] - n_drawn[place], ends[place])
            by_template[draws] += rng.binomial(n, rate, n_drawn[place])
        n_correct[np.argsort(drawn_templates, kind="stable")] += by_template
        n_pairs += n_asked[drawn_templates]
    return n_correct / n_pairs


class CondensedAnswers(NamedTuple):
    """Each pair's number of answers (PAIRS) and its terms of each metric (NAMED_TERMS).

    `rates` are those of `template_rates`.
    """

    pairs: pl.DataFrame
    terms: pl.DataFrame
    rates: pl.DataFrame

    def of(self, metric: str) -> pl.DataFrame:
        """The terms of a metric (TERMS), sorted as those of `pair_terms`."""
        return self.terms.filter(metric=metric).select(TERMS.names()).sort(_PAIR)

    def counts(self, n_failed: pl.DataFrame | None) -> Counts:
        """The number of answers of each relation; `n_failed` as in `count_answers`."""
        return count_answers(self.pairs, n_failed, pl.sum("n"))

    def estimates(
        self, metrics: Iterable[str], **draws: Unpack[Draws]
    ) -> dict[str, BootstrapResult]:
        """Some metrics with their intervals."""
        terms = {metric: self.of(metric) for metric in metrics}
        return bootstrap_ratios(terms, **draws)

    def fluctuation(self, draw: Draw, *, n_draws: int, seed: int) -> Fluctuation:
        """Range and SD over draws, as in `fluctuation`."""
        if draw == "template":
            accuracies = template_draws(self.rates, n_draws=n_draws, seed=seed)
        else:
            accuracies = pair_draws(self.of("acc_at_1"), n_draws=n_draws, seed=seed)
        if not accuracies.size:
            return Fluctuation(None, None)
        return Fluctuation(float(np.ptp(accuracies)), float(accuracies.std()))


def condense_terms(answers: pl.DataFrame, terms: Mapping[str, pl.DataFrame]) -> CondensedAnswers:
    """Condense answers and their terms by metric."""
    pairs = answers.group_by(_PAIR).agg(n=pl.len()).cast(PAIRS).sort(_PAIR)
    named_terms = [
        rows.select(pl.lit(metric).alias("metric"), *TERMS.names()).cast(NAMED_TERMS)
        for metric, rows in terms.items()
    ]
    return CondensedAnswers(
        pairs, pl.concat([NAMED_TERMS.to_frame(), *named_terms]), template_rates(answers)
    )


ACC_AT_1 = Metric(
    "acc_at_1",
    heading="Acc@1",
    says="share of prompts answered right, averaged over facts; 0 to 1",
    better="higher",
    terms=acc_at_1_terms,
)
ONE_WORD_RATIO = Metric(
    "one_word_ratio",
    heading="one-word",
    says="share of answers that are one word",
    better="higher",
    terms=one_word_ratio_terms,
)
_UNDER_BEST = "share of facts right under their relation's best template"
_UNDER_ANY = "share of facts right under at least one prompt"
COVERAGE_MAXIMUM = Metric("coverage_maximum", "maximum", _UNDER_BEST, "higher")
COVERAGE_ORACLE = Metric(
    "coverage_oracle", "oracle", _UNDER_ANY, "higher", terms=coverage_oracle_terms
)
_BETWEEN_ENDS = "accuracy of the best draw of prompts minus that of the worst"
_SD = "standard deviation of accuracy over draws of prompts"
FLUCTUATION_RANGE = Metric("fluctuation_range", "range", _BETWEEN_ENDS, "lower")
FLUCTUATION_SD = Metric("fluctuation_sd", "SD", _SD, "lower")
_MATCHING = "share of pairs of prompts of a fact whose answers match"
CONSIST = Metric("consist", "Consist", _MATCHING, "higher", terms=consist_terms)
