"""Ability: a task of engines. Method: how a benchmark is asked, measured and shown.

The pipeline knows no benchmark by name. A new one is a module in this package with its `METHOD`, a
line in `operators.methods.METHODS`, and YAML.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol

import polars as pl
from pydantic import Field

from factsweep.operators.datasets.facts import Facts, Slice, slice_facts
from factsweep.operators.metrics.comparing.paired import Unit
from factsweep.operators.metrics.data_set import Encode, Parse
from factsweep.operators.metrics.noise import flip_rate, permutation_difference
from factsweep.operators.metrics.shared.bootstrap import Draws
from factsweep.operators.metrics.shared.rows import Metric
from factsweep.operators.prompts.expansion import Expansion
from factsweep.operators.tables.shared.canvas import Figure
from factsweep.operators.tables.shared.pivot import Answers, ModelSetting

Differ = Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class Ability:
    """One task of an engine.

    `answers` is the table with one row per answered prompt, and `column` its column that holds the
    answer. `repeat_table` is the table of the prompts that are answered a second time; null: none.
    `extra_tables` are the tables of optional answers. `differ` measures how far the first and
    the second answers to the same prompts differ, as rows of the metrics.
    """

    name: Literal["generate", "fill", "score", "prefer"]
    answers: str
    column: str
    repeat_table: str | None
    extra_tables: tuple[str, ...] = ()
    differ: Differ = flip_rate

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that an engine writes."""
        return tuple(filter(None, (self.answers, self.repeat_table, *self.extra_tables)))


def _items(preferences: pl.DataFrame) -> pl.DataFrame:
    """One row per candidate: logprob, prompt_id (of a wrong one, with its own id at the end)."""
    wrong = preferences.select("prompt_id", "distractors").explode("distractors")
    wrong = wrong.drop_nulls("distractors").unnest("distractors")
    wrong_id = pl.concat_str("prompt_id", "entity_id", separator="\x1f").alias("prompt_id")
    right = preferences.select("logprob", "prompt_id")
    return pl.concat([right, wrong.select("logprob", wrong_id)])


GENERATE = Ability(
    "generate",
    "generations",
    "text",
    repeat_table="canary",
    extra_tables=("samples", "p_true", "verbalised"),
)
FILL = Ability("fill", "masked", "token", repeat_table=None, extra_tables=("priors",))
SCORE = Ability(
    "score", "scores", "logprob", repeat_table="rescored", differ=permutation_difference
)
PREFER = Ability(
    "prefer",
    "preferences",
    "logprob",
    repeat_table="preferred_again",
    extra_tables=("beams", "chances"),
    differ=lambda first, again: permutation_difference(_items(first), _items(again)),
)

# The contents of the tables without one answer per prompt, in a few words.
BESIDE: Mapping[str, str] = MappingProxyType(
    {
        "canary": "asked again, to see whether answers change",
        "samples": "drawn at random, for confidence",
        "p_true": "asked whether an answer is true, for confidence",
        "verbalised": "asked how sure an answer is, for confidence",
        "priors": "to prompts without a subject, for what is likely anyway",
        "rescored": "scored again in another order, to see whether scores change",
        "preferred_again": "compared again in another order, to see whether scores change",
        "beams": "continuations, for the baselines that read them",
        "chances": "of other subjects and relations, for KaRR",
    }
)

ABILITIES = (GENERATE, FILL, SCORE, PREFER)


Tables = Mapping[str, pl.DataFrame]


class PromptSetting(Protocol):
    """How facts are asked (conf/prompt/): a frozen dataclass, as both may stand in tables."""

    @property
    def name(self) -> str:
        """The column `setting`."""

    @property
    def variant(self) -> str | None:
        """The departures from the defaults: the column `variant`."""


# Facts and a setting, with seed=, → all its prompts, relation by relation.
Expand = Callable[..., Iterator[Expansion]]
# The matched tables of a relation, from its answers and the further tables of the method's ability
# (empty: not asked for). Answers have prompt_id, relation_id, pair_id, template_id, subject_index,
# and the engine's columns (`text`, or those of `masked`); `samples` have prompt_id and text.
Matcher = Callable[[pl.DataFrame, Tables], Tables]


@dataclass(frozen=True)
class Evidence:
    """The input of a method's metrics.

    `tables` are the results of `Measure.condense`, of all relations together. `n_failed`
    (relation_id, n_failed) counts the prompts without an answer, `n_failed_samples` those without
    samples; null if none were asked. `repeated_answers` are the second answers of decoders, with
    log-probabilities; null if none were asked. `options` are those of the method (conf/metrics/).
    """

    facts: Facts
    setting: Any
    tables: Tables
    n_failed: pl.DataFrame
    n_failed_samples: pl.DataFrame | None
    repeated_answers: pl.DataFrame | None
    options: Any
    seed: int

    @property
    def draws(self) -> Draws:
        """The seed and the number of the bootstrap's rounds."""
        return {"seed": self.seed, "n_rounds": self.options.n_rounds}


@dataclass(frozen=True)
class Result:
    """The measured tables of several runs, and the inputs of their report.

    `tables` has the metrics, and the other tables of `Measure.compute`, each with model, benchmark,
    setting and variant; where a setting has several seeds, the metrics have `sd`, `n_seeds` and
    `n_asked`, too (`over_seeds`). `answers` has each setting's first matched table, of one seed.
    `costs` has rows of the metrics table: runtime_hours of a setting, billions_of_parameters of a
    model. `cutoffs` are the months in which models' training data ends, if known. `published` are
    the numbers of the benchmark's paper, `departure` says of which other facts they are, `n_tokens`
    counts the tokens of texts, `parse` and `encode` measure how different texts are; null: none.
    """

    facts: Facts
    tables: Tables
    costs: pl.DataFrame
    answers: Mapping[ModelSetting, Answers] = field(default_factory=dict)
    cutoffs: Mapping[str, str] = field(default_factory=dict)
    published: pl.DataFrame | None = None
    departure: str | None = None
    n_tokens: Callable[[Sequence[str]], Sequence[int]] | None = None
    parse: Parse | None = None
    encode: Encode | None = None


@dataclass(frozen=True)
class Report:
    """The files of a report, by name; `titles` has titles that a name does not give.

    `raw` are tables for programs: numbers as they were computed, not rounded.
    """

    tables: Tables
    figures: Mapping[str, Figure] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    raw: Tables = field(default_factory=dict)


def join_reports(*reports: Report) -> Report:
    """Join several reports; of equal names, the last wins."""
    merged = Report({})
    for report in reports:
        merged = Report(
            {**merged.tables, **report.tables},
            {**merged.figures, **report.figures},
            {**merged.titles, **report.titles},
            {**merged.raw, **report.raw},
        )
    return merged


@dataclass(frozen=True)
class Digest:
    """A relation's facts and their answers, for the page with the fact browser.

    `facts`: pair_id, asked (null: as the setting says), share (how right, 0 to 1), n (of how many),
    right (the right answers' first labels). `replies`: pair_id, asked, answer, note (how often, or
    how likely), right; each pair's foremost first. `templates`, where there are several:
    template_id, share.
    """

    facts: pl.DataFrame
    replies: pl.DataFrame
    templates: pl.DataFrame | None = None


@dataclass(frozen=True)
class Rounds:
    """The options of a method with nothing but bootstrap rounds."""

    n_rounds: Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True)
class Ask:
    """How facts are asked.

    `setting` is the frozen dataclass of a section of conf/prompt/, `ability` the task of the
    engine. `masked` names the method that replaces this one where the model is an encoder; null:
    none. With `adds_bos` scored texts begin with BOS if the tokenizer has one.
    """

    setting: type[Any]
    expand: Expand
    sliced: Callable[[Facts, Slice], Facts] = slice_facts
    ability: Ability = GENERATE
    masked: str | None = None
    adds_bos: bool = False

    @property
    def knowledge_base(self) -> bool:
        """Whether `expand` gets facts with a knowledge base, which has the compared entities."""
        return self.ability == PREFER


@dataclass(frozen=True)
class Part:
    """The answered part of the prompts from which the full run is estimated.

    `answers` is the first matched table, of all relations. `pairs` has the prompts of the full run
    for each pair: relation_id, pair_id, n_names and n_templates, whose product is their number, and
    n_failed, how many of them are known to have no answer; pairs without any answer are left out.
    `control` loads an earlier run's matched answers to all prompts of a relation; null: no such
    run.
    """

    facts: Facts
    setting: Any
    answers: pl.DataFrame
    pairs: pl.DataFrame
    options: Any
    seed: int
    control: Callable[[str], pl.DataFrame] | None = None

    @property
    def draws(self) -> Draws:
        """The seed and the number of the bootstrap's rounds."""
        return {"seed": self.seed, "n_rounds": self.options.n_rounds}


@dataclass(frozen=True)
class Sampling:
    """How parts of a benchmark's prompts are chosen, and the full run is estimated from one.

    With `whole_pairs` a pair is asked with all of its prompts, or not at all. `estimate` gives the
    table `estimates` (`operators.schemas`) without model and benchmark; a missing setting becomes
    the run's. `targets` are the metrics, of one row each, whose interval may be given a target
    width; `takes_control` says whether an earlier full run narrows them.
    """

    estimate: Callable[[Part], pl.DataFrame]
    whole_pairs: bool = False
    targets: tuple[str, ...] = ()
    takes_control: bool = False


# The input of `compute` from the matched tables of some relations, the prompts that may be answered
# a second time (prompt_id), the facts, and the method's options.
Condense = Callable[[Tables, pl.DataFrame, Facts, Any], Tables]


@dataclass(frozen=True)
class Measure:
    """How answers are matched with facts, and metrics computed from them.

    `version` rises when the same answers give other numbers. `compute` gives the tables named in
    `measured`: `metrics`, and further tables for figures. It reads the concatenated results of
    `condense`, so that a few relations are in memory; `categories` are texts of the answers that
    `condense` takes as categories. `main_metric` is defined over every answered prompt; failures
    are counted from it. `metrics` are those with a heading or a better direction. `options` is the
    frozen dataclass of its section of conf/metrics/. `matcher` is made from the facts, the name of
    a spaCy pipeline and a loader of the tokenizer; `versions` names the software that it depends
    on. `can_match` marks the labels that some answer can match. The matcher gives the tables named
    in `matched`, first the one with a row per answered prompt; `calibration` has one per sampled
    prompt, and `errors` the prompts that the model cannot answer, which have not failed.
    `sampling`: how the numbers are estimated from a part of the prompts; null: they are not.
    `of_samples` are the metrics of samples, whose interval may be given a target width.
    `reads_refusals`: answers that attempt no answer are counted (conf/refusals/). `takes_judges`:
    models may judge the answers, too.
    """

    version: int
    compute: Callable[[Evidence], Tables]
    main_metric: str
    metrics: tuple[Metric, ...] = ()
    measured: tuple[str, ...] = ("metrics",)
    options: type[Any] = Rounds
    matcher: Callable[[Facts, str, Callable[[], Any]], Matcher] = (
        lambda _facts, _pipeline, _tokenizer: lambda answers, _further: {"given": answers}
    )
    matched: tuple[str, ...] = ("given",)
    versions: Callable[[str], Mapping[str, str]] = lambda _pipeline: {}
    can_match: Callable[[pl.Series, str], pl.Series] = lambda labels, _pipeline: (
        labels.is_not_null()
    )
    condense: Condense = lambda tables, _again, _facts, _options: tables
    categories: tuple[str, ...] = ()
    sampling: Sampling | None = None
    of_samples: tuple[str, ...] = ()
    reads_refusals: bool = False
    takes_judges: bool = False

    @property
    def answers(self) -> str:
        """The matched table with one row per answered prompt."""
        return self.matched[0]

    @property
    def calibration(self) -> str | None:
        """The matched table with one row per sampled prompt; null: none."""
        return "calibration" if "calibration" in self.matched else None

    @property
    def sampled(self) -> str | None:
        """The matched table that counts the samples of each prompt; null: none."""
        return "sampled" if "sampled" in self.matched else self.calibration

    @property
    def confidences(self) -> tuple[str, ...]:
        """The matched tables of confidences: of samples, and of other kinds."""
        return tuple(name for name in ("calibration", "confidences") if name in self.matched)

    @property
    def left_out(self) -> str | None:
        """The matched table of the prompts that the model cannot answer; null: none."""
        return "errors" if "errors" in self.matched else None


@dataclass(frozen=True)
class Show:
    """How results are shown.

    `published` names the file of the paper's numbers, `card` is the summary on a terminal, and
    `digest` feeds the fact browser; null: nothing. The defaults show all numbers as they are.
    """

    published: str
    report: Callable[[Result], Report] = lambda result: Report(
        {"headline": result.tables["metrics"]}
    )
    card: Callable[[pl.DataFrame], pl.DataFrame] = lambda metrics: metrics.filter(
        pl.col("slice").is_null()
    ).select("metric", "value")
    digest: Callable[[Facts, pl.DataFrame], Digest] | None = None


@dataclass(frozen=True)
class Compare:
    """How two runs are compared, as far as the method decides it.

    All functions read matched tables (`Measure.matched`, by name) of two runs. `terms` gives the
    terms of one relation's pairs in both (columns: `operators.metrics.comparing.paired.PAIRED`),
    from the prompts of both or, where facts are paired, from each run's prompts of the facts of
    both; a fact is robustly known from the given share of right prompts. `ranked` gives rows of
    `operators.metrics.comparing.comparison.COMPARISON` over everything, from the whole tables
    `Measure.confidences` of both and a number of rounds; null: all metrics are sums over pairs.
    """

    terms: Callable[[Tables, Tables, Unit, float], pl.DataFrame]
    ranked: Callable[[Tables, Tables, int], pl.DataFrame] | None = None


@dataclass(frozen=True)
class Method:
    """A benchmark's own way to ask, to measure, to show, and, if it can, to compare two runs.

    `evidence` gives a run's evidence on each fact of a relation (columns:
    `operators.metrics.belief.knowledge_state.EVIDENCE`) from its matched tables and the facts;
    null: its answers are not right or wrong by themselves.
    """

    ask: Ask
    measure: Measure
    show: Show
    compare: Compare | None = None
    evidence: Callable[[Tables, Facts], pl.DataFrame] | None = None
