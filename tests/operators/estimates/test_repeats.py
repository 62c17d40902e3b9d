"""What demonstrations and decoding add to the variance of answers, on made-up answers."""

from dataclasses import dataclass
from typing import get_args

import numpy as np
import polars as pl
import pytest

from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.repeats import (
    Drawn,
    Repeat,
    Scope,
    Share,
    Twice,
    decoding,
    demonstrations,
    with_repeats,
)
from factsweep.operators.estimates.table import Scored, scored
from factsweep.operators.estimates.variance import SOURCES, VARIANCE, advice, variance

N_RELATIONS, N_FACTS, N_TEMPLATES = 4, 20, 10


def half() -> Crossed:
    """Five of ten templates of each fact, all as often."""
    every = np.meshgrid(np.arange(N_RELATIONS * N_FACTS), np.arange(N_TEMPLATES), indexing="ij")
    fact, template = (each.ravel() for each in every)
    asked = (fact + template) % 2 == 0
    return Crossed(
        np.repeat(np.arange(N_RELATIONS), N_FACTS),
        np.ones(N_RELATIONS * N_FACTS, np.int64),
        np.full(N_RELATIONS, N_TEMPLATES),
        fact[asked],
        template[asked],
        np.zeros(int(asked.sum()), np.int64),
    )


SAMPLE = half()
N = len(SAMPLE.fact)
GROUPS = {
    "all": np.zeros(N, np.int64),
    "relation": SAMPLE.cell_relation,
    "template": SAMPLE.in_template,
    "prompt": np.arange(N),
}


@dataclass(frozen=True)
class World:
    """The SD of what a run draws anew for its answers."""

    of_group: float = 0.0
    of_prompt: float = 0.0
    of_decoding: float = 0.0
    drawn: Drawn = "template"

    def scores(self, seed: int, drawn: Drawn | None = None) -> FloatArray:
        """What the answers of a run score, with demonstrations and noise of its seed."""
        rng = np.random.default_rng(7)
        fixed = rng.normal(size=SAMPLE.n_facts)[SAMPLE.fact]
        fixed = fixed + 0.3 * rng.normal(size=N_RELATIONS * N_TEMPLATES)[SAMPLE.in_template]
        rng = np.random.default_rng([seed, 1])
        of_group = self.of_group * rng.normal(size=N)[GROUPS[drawn or self.drawn]]
        of_prompt = self.of_prompt * rng.normal(size=N)
        scores: FloatArray = fixed + of_group + of_prompt + self.of_decoding * rng.normal(size=N)
        return scores

    def answered(self, seed: int, *, again: int | None = None) -> pl.DataFrame:
        """The answers of a run; with `again`, decoded again with noise of that seed."""
        score = self.scores(seed)
        if again is not None:
            score = score + np.random.default_rng(again).normal(0, 2**0.5 * self.of_decoding, N)
        rows = pl.DataFrame(
            {"r": SAMPLE.cell_relation, "f": SAMPLE.fact, "t": SAMPLE.template, "correct": score}
        )
        number = pl.col("f").cast(pl.String).str.zfill(3)
        return rows.select(
            prompt_id=pl.format("P{}.t{}.{}", "r", number, "t"),
            relation_id=pl.format("P{}", "r"),
            pair_id=pl.format("P{}.t{}", "r", number),
            template_id=pl.format("P{}.{}", "r", "t"),
            subject_index=pl.lit(0),
            key=pl.lit("x"),
            n_lemmas=pl.lit(1),
            correct="correct",
        )

    def found(self, seed: int) -> Scored:
        return scored(PAIRS, self.answered(seed))

    def share(self, seed: int, scope: Scope = "shared") -> Share:
        other = self.scores(seed + 1000, "prompt" if scope == "prompt" else None)
        second = Twice(SAMPLE, other - self.scores(seed), scope)
        share = demonstrations([second], self.drawn, self.of_decoding**2)
        assert share is not None
        return share


PAIRS = (
    World()
    .answered(0)
    .select("relation_id", "pair_id", n_names=1, n_templates=N_TEMPLATES)
    .unique(maintain_order=True)
)


def mean_and_error(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values) / np.sqrt(len(values)))


def test_decoding_is_half_the_mean_squared_difference() -> None:
    world, values = World(of_decoding=0.5), []
    for seed in range(30):
        again = Twice(SAMPLE, world.scores(seed) - world.scores(seed + 99), None)
        values.append(decoding([again]) or 0.0)
    mean, error = mean_and_error(values)
    assert abs(mean - 0.25) < 3 * error < 0.02


@pytest.mark.parametrize("scope", get_args(Scope))
@pytest.mark.parametrize("drawn", get_args(Drawn))
def test_demonstrations_are_unbiased_in_sum_and_in_what_draws_add_to_the_mean(
    drawn: Drawn, scope: Scope
) -> None:
    """Whatever prompts share their demonstrations, here and in the other run."""
    world = World(of_group=0.4, of_prompt=0.3, of_decoding=0.2, drawn=drawn)
    shares = [world.share(seed, scope) for seed in range(200)]
    mean, error = mean_and_error([each.variance for each in shares])
    assert abs(mean - 0.25) < 3 * error < 0.06
    draws = {"all": 1, "relation": N_RELATIONS, "template": N_RELATIONS * N_TEMPLATES}
    known = 0.25 / N if drawn == "prompt" else 0.16 / draws[drawn] + 0.09 / N
    mean, error = mean_and_error([each.error for each in shares])
    assert abs(mean - known) < 3 * error


def test_demonstrations_of_several_other_runs_are_their_mean() -> None:
    world = World(of_group=0.4, of_prompt=0.3)
    others = [Twice(SAMPLE, world.scores(n) - world.scores(0), "shared") for n in (1, 2)]
    asked = [demonstrations(each, "template", 0.0) for each in (others[:1], others[1:], others)]
    one, other, both = (share for share in asked if share is not None)
    for found, first, second in zip(both, one, other, strict=True):
        assert found == pytest.approx((first + second) / 2)


@pytest.mark.parametrize("scope", get_args(Scope))
def test_shared_demonstrations_of_templates_are_part_of_templates(scope: Scope) -> None:
    world = World(of_group=0.5, of_prompt=0.3, of_decoding=0.2)
    parts = np.array([world.share(seed, scope).of_sources for seed in range(40)])
    means, errors = parts.mean(0), parts.std(0) / np.sqrt(len(parts))
    template = SOURCES.index("template")
    assert abs(means[template] - 0.25) < 3 * errors[template] < 0.06
    inside = means[SOURCES.index("fact × template")] + means[SOURCES.index("rest")]
    assert inside == pytest.approx(0.09, abs=0.015)


def test_rows_of_repeats_take_what_is_theirs_out_of_the_others() -> None:
    world = World(of_group=0.5, of_prompt=0.3, of_decoding=0.2)
    found = world.found(1)
    rows = variance(found.sample, found.correct)
    own = [
        Repeat(world.answered(1, again=5), None),
        Repeat(world.answered(2), "shared"),
        Repeat(world.answered(3), "shared"),
    ]
    full = with_repeats(rows, found, PAIRS, "template", own)
    assert full.schema == VARIANCE
    assert full["source"].to_list() == [*SOURCES, "demonstrations", "decoding"]
    assert full["why"].null_count() == full.height
    known = dict(full.select("source", "variance").iter_rows())
    assert known["decoding"] == pytest.approx(0.04, abs=0.01)
    assert known["demonstrations"] == pytest.approx(0.34, abs=0.15)
    before = dict(rows.select("source", "variance").iter_rows())
    assert known["template"] < before["template"]
    assert known["rest"] < before["rest"]
    assert full["full_error"].sum() == pytest.approx(rows["full_error"].sum())
    assert (full["variance"] >= 0).all()


def test_demonstrations_of_a_prompt_s_own_are_part_of_the_rest() -> None:
    world = World(of_prompt=0.4, drawn="prompt")
    found = world.found(1)
    rows = variance(found.sample, found.correct)
    full = with_repeats(rows, found, PAIRS, "prompt", [Repeat(world.answered(2), "prompt")])
    same = full.head(len(SOURCES)).filter(pl.col("source") != "rest")
    assert same.equals(rows.filter(pl.col("source") != "rest"))
    known = dict(full.select("source", "variance").iter_rows())
    assert known["demonstrations"] == pytest.approx(0.16, abs=0.04)
    assert "the rest and of demonstrations" in full["why"][-1]


WHYS = {
    "none": ("the prompts have none", "no prompt was answered twice"),
    "nothing": ("no run of another seed or prompt.scope", "part of the rest"),
    "few": ("fewer than 50 prompts were also asked", "no prompt was answered twice"),
    "few again": ("no run of another seed", "fewer than 50 prompts were answered twice"),
    "once": ("no fact was asked twice with other ones", "no prompt was answered twice"),
}


@pytest.mark.parametrize("given", WHYS)
def test_repeats_that_say_nothing_are_null_with_the_reason(given: str) -> None:
    world = World()
    found, other = world.found(1), world.answered(2)
    repeats = {
        "few": [Repeat(other.head(49), "shared")],
        "few again": [Repeat(other.head(49), None)],
        "once": [Repeat(other.unique("pair_id", keep="first", maintain_order=True), "shared")],
    }
    rows = with_repeats(
        variance(found.sample, found.correct),
        found,
        PAIRS,
        None if given == "none" else "template",
        repeats.get(given, []),
    )
    new = rows.tail(2)
    assert new["variance"].null_count() == new["other_error"].null_count() == 2
    for why, expected in zip(new["why"], WHYS[given], strict=True):
        assert expected in why
    assert advice(rows) == advice(variance(found.sample, found.correct))


def test_advice_where_demonstrations_dominate_is_another_seed() -> None:
    world = World(of_group=2.0, drawn="relation")
    found = world.found(1)
    rows = with_repeats(
        variance(found.sample, found.correct),
        found,
        PAIRS,
        "relation",
        [Repeat(world.answered(2), "shared")],
    )
    assert advice(rows).startswith("Run another seed, or prompt.scope=prompt: ")


@pytest.mark.parametrize(("lessened", "expected"), [(0.0, "Run another seed"), (8e-5, "Ask more")])
def test_advice_is_no_other_seed_where_prompts_lessen_what_demonstrations_do(
    lessened: float, expected: str
) -> None:
    rows = pl.DataFrame(
        {
            "source": ["fact", "rest", "demonstrations"],
            "variance": [0.1, 0.1, 0.1],
            "full_error": [0.0, 1e-5, lessened],
            "other_error": [1e-5, 1e-5, 9e-5],
        }
    )
    assert advice(rows).startswith(expected)
