"""Method: how a benchmark is measured, from its facts to its tables, whatever model answers.

The pipeline asks a method what to do and knows no benchmark by name. A new one is a module in this
package with its `METHOD`, a line in `operators.methods.METHODS`, and YAML.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import polars as pl
from pydantic import Field

from factsweep.operators.datasets.facts import Facts, Slice, slice_facts
from factsweep.operators.methods.ability import GENERATE, PREFER, Ability
from factsweep.operators.metrics.comparing.paired import Unit
from factsweep.operators.metrics.data_set import Encode, Parse
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.prompts.expansion import Expansion
from factsweep.operators.tables.shared.canvas import Figure
from factsweep.operators.tables.shared.wide import Answers, ModelSetting

Tables = Mapping[str, pl.DataFrame]


class Asked(Protocol):
    """How facts are asked (conf/prompt/): a frozen dataclass, as both may stand in tables."""

    @property
    def name(self) -> str:
        """The column `setting`."""

    @property
    def variant(self) -> str | None:
        """The departures from the defaults: the column `variant`."""


# Writes facts as prompts: facts and a setting, with seed=, → all its prompts, relation by relation.
Expand = Callable[..., Iterator[Expansion]]
# The matched tables of a relation, from its answers and further tables, which the method's ability
# names, empty where they were not asked for. Answers have prompt_id, relation_id, pair_id,
# template_id, subject_index, and what the engine wrote (`text`, or the columns of `masked`); a
# decoder's `samples` are prompt_id and text, one row per answer.
Matcher = Callable[[pl.DataFrame, Tables], Tables]


@dataclass(frozen=True)
class Evidence:
    """What metrics are computed from.

    `tables` are what `Measure.condense` keeps of the matched ones, of all relations together.
    `n_failed` (relation_id, n_failed) counts the prompts without an answer, `n_failed_samples`
    those without samples; null if none were asked.
    `again` are the answers that were made a second time, those of decoders with log-probabilities;
    null if none were. `options` are those of the method (conf/metrics/).
    """

    facts: Facts
    setting: Any
    tables: Tables
    n_failed: pl.DataFrame
    n_failed_samples: pl.DataFrame | None
    again: pl.DataFrame | None
    options: Any
    seed: int


@dataclass(frozen=True)
class Result:
    """What was measured: `tables` has the metrics, and what else `Method.measure` gave.

    Every table has model, benchmark, setting and variant; where a setting has several seeds, the
    metrics have `sd`, `n_seeds` and `n_asked`, too (`over_seeds`). `answers` has each setting's
    first matched table, of one seed. `costs` has rows of the
    metrics table, too: runtime_hours of a setting, billions_of_parameters of a model. `cutoffs` are
    the months in which models' training data ends, where they are known. `published`
    are the numbers of the benchmark's paper, `n_tokens` counts the tokens of texts, `parse` and
    `encode` measure how different texts are; null where there are none.
    """

    facts: Facts
    tables: Tables
    costs: pl.DataFrame
    answers: Mapping[ModelSetting, Answers] = field(default_factory=dict)
    cutoffs: Mapping[str, str] = field(default_factory=dict)
    published: pl.DataFrame | None = None
    n_tokens: Callable[[Sequence[str]], Sequence[int]] | None = None
    parse: Parse | None = None
    encode: Encode | None = None


@dataclass(frozen=True)
class Report:
    """What is written for people, by file name; `titles` has those that a name does not say.

    `raw` are tables for programs: numbers as they were computed, not rounded.
    """

    tables: Tables
    figures: Mapping[str, Figure] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    raw: Tables = field(default_factory=dict)


def joined(*reports: Report) -> Report:
    """Several reports as one; of what has the same name, the last."""
    parts = zip(*((one.tables, one.figures, one.titles, one.raw) for one in reports), strict=True)
    return Report(*({name: each for one in part for name, each in one.items()} for part in parts))


@dataclass(frozen=True)
class Digest:
    """What the answers of a relation say of its facts, for a page that facts are searched on.

    `facts`: pair_id, asked (null: as the setting says), share (how right, 0 to 1), n (of how many),
    right (the right answers' first labels).
    `replies`: pair_id, asked, answer, note (how often, or how likely), right; each pair's foremost
    first. `templates`, where there are several: template_id, share.
    """

    facts: pl.DataFrame
    replies: pl.DataFrame
    templates: pl.DataFrame | None = None


@dataclass(frozen=True)
class Rounds:
    """The options of a method that draws nothing but the rounds of its intervals."""

    n_rounds: Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True)
class Ask:
    """How facts are asked.

    `setting` is the frozen dataclass of a section of conf/prompt/. `ability` is what is asked of an
    engine. `masked` names the method that takes this one's place where the model is an encoder;
    null: there is none.
    """

    setting: type[Any]
    expand: Expand
    sliced: Callable[[Facts, Slice], Facts] = slice_facts
    ability: Ability = GENERATE
    masked: str | None = None

    @property
    def knowledge_base(self) -> bool:
        """Whether `expand` gets facts with one: entities that are compared come from there."""
        return self.ability == PREFER


@dataclass(frozen=True)
class Part:
    """A part of the prompts, answered: what the full run is estimated from.

    `answers` is the first matched table, of all relations. `pairs` is what the full run asks of
    each pair: relation_id, pair_id, n_names and n_templates, whose product are its prompts, and
    n_failed, how many of them are known to have no answer. A pair of which all have none is not
    there.
    `control` gives what an earlier run answered to all prompts of a relation, matched; null: no run
    is given.
    """

    facts: Facts
    setting: Any
    answers: pl.DataFrame
    pairs: pl.DataFrame
    options: Any
    seed: int
    control: Callable[[str], pl.DataFrame] | None = None


@dataclass(frozen=True)
class Sampling:
    """How parts of a benchmark's prompts are chosen, and what is estimated from one.

    With `whole_pairs` a pair is asked with all of its prompts, or not at all. `estimate` gives the
    table `estimates` (`operators.schemas`) without model and benchmark; where it gives no setting,
    that of the run is put there.
    `targets` are the metrics, of one row each, whose interval may be asked to be narrow;
    `takes_control` says whether an earlier full run narrows them.
    """

    estimate: Callable[[Part], pl.DataFrame]
    whole_pairs: bool = False
    targets: tuple[str, ...] = ()
    takes_control: bool = False


# What `compute` needs of the matched tables of some relations: from these, the prompts that may be
# answered a second time (prompt_id), the facts, and the method's options.
Condense = Callable[[Tables, pl.DataFrame, Facts, Any], Tables]


def as_matched(tables: Tables, _again: pl.DataFrame, _facts: Facts, _options: Any) -> Tables:
    """The matched tables as they are, where metrics are computed from them."""
    return tables


def as_given(_facts: Facts, _pipeline: str, _tokenizer: Callable[[], Any]) -> Matcher:
    """The answers as they were given, where metrics read them so: the table `given`."""
    return lambda answers, _further: {"given": answers}


@dataclass(frozen=True)
class Measure:
    """How answers are compared with facts, and what is computed of them.

    `version` rises when the same answers give other numbers. `compute` gives the tables that
    `measured` names: `metrics`, and what figures show in addition. It reads what `condense` keeps
    of each relation, put together, so that a few relations are in memory; `categories` are texts of
    the answers that `condense` takes as categories. `main_metric` is defined over every answered
    prompt; failures are counted from it. `metrics` are those that have a heading or a better
    direction. `options` is the frozen dataclass of what it reads of conf/metrics/.
    `matcher` is made of the facts, the name of a spaCy pipeline and what loads the tokenizer;
    `versions` names the software that it depends on. `can_match` says of labels whether any answer
    can match them. The matcher gives the tables that `matched` names,
    first the one with a row per answered prompt; `calibration`, if it is there, has one per sampled
    prompt, and `errors` the prompts that the model cannot answer, which have not failed. `sampling`
    says how the numbers are estimated from a part of the prompts; null: they are not.
    """

    version: int
    compute: Callable[[Evidence], Tables]
    main_metric: str
    metrics: tuple[Metric, ...] = ()
    measured: tuple[str, ...] = ("metrics",)
    options: type[Any] = Rounds
    matcher: Callable[[Facts, str, Callable[[], Any]], Matcher] = as_given
    matched: tuple[str, ...] = ("given",)
    versions: Callable[[str], Mapping[str, str]] = lambda _pipeline: {}
    can_match: Callable[[pl.Series, str], pl.Series] = lambda labels, _pipeline: (
        labels.is_not_null()
    )
    condense: Condense = as_matched
    categories: tuple[str, ...] = ()
    sampling: Sampling | None = None

    @property
    def answers(self) -> str:
        """The matched table with one row per answered prompt."""
        return self.matched[0]

    @property
    def calibration(self) -> str | None:
        """The matched table with one row per sampled prompt; null: there is none."""
        return "calibration" if "calibration" in self.matched else None

    @property
    def left_out(self) -> str | None:
        """The matched table of the prompts that the model cannot answer; null: there is none."""
        return "errors" if "errors" in self.matched else None


def every_number(result: Result) -> Report:
    """All numbers as they are: the report of a method that has no tables of its own."""
    return Report({"headline": result.tables["metrics"]})


def over_all(metrics: pl.DataFrame) -> pl.DataFrame:
    """The numbers over everything: the card of a method that has none of its own."""
    return metrics.filter(pl.col("slice").is_null()).select("metric", "value")


@dataclass(frozen=True)
class Show:
    """How results are shown.

    `published` names the file of the paper's numbers. `card` is the summary that a terminal shows.
    `digest` is what a page shows of a relation's facts, from its answers; null: nothing.
    """

    published: str
    report: Callable[[Result], Report] = every_number
    card: Callable[[pl.DataFrame], pl.DataFrame] = over_all
    digest: Callable[[Facts, pl.DataFrame], Digest] | None = None


@dataclass(frozen=True)
class Compare:
    """How two runs are compared: the part of it that is the method's own.

    All three read matched tables (`Measure.matched`, by name) of two runs. `terms` gives the terms
    of one relation's pairs in both (columns: `operators.metrics.comparing.paired.PAIRED`),
    from the prompts that both have or, where facts are paired, from those that each has of the
    facts of both; a fact is robustly known from the given share of right prompts. `evidence` says
    what one run shows of each fact of a relation
    (columns: `operators.metrics.belief.knowledge_state.EVIDENCE`). `ranked` gives rows of
    `operators.metrics.comparing.comparison.COMPARISON` over everything, from the whole tables
    `Measure.calibration` of both and a number of rounds; null: all metrics are sums over pairs.
    """

    terms: Callable[[Tables, Tables, Unit, float], pl.DataFrame]
    evidence: Callable[[Tables], pl.DataFrame]
    ranked: Callable[[pl.DataFrame, pl.DataFrame, int], pl.DataFrame] | None = None


@dataclass(frozen=True)
class Method:
    """A benchmark's own way: to ask, to measure, to show, and, if it can, to compare two runs."""

    ask: Ask
    measure: Measure
    show: Show
    compare: Compare | None = None
