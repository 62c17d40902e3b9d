"""Method: how a benchmark is measured, from its facts to its tables, whatever model answers.

The pipeline asks a method what to do and knows no benchmark by name. A new one is a module beside
this with its `METHOD`, a line in `operators.methods.METHODS`, and YAML.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl
from matplotlib.figure import Figure

from operators.datasets.facts import Facts, Slice
from operators.methods.ability import GENERATE, Ability
from operators.metrics.data_set.diversity import Encode, Parse
from operators.metrics.estimates.metric import Metric
from operators.metrics.noise.flip_rate import flip_rate
from operators.prompts.expansion import Expansion
from operators.tables.shared.asking import Asking


class Asked(Protocol):
    """How facts are asked (conf/prompt/): a frozen dataclass, as both may stand in tables."""

    @property
    def name(self) -> str:
        """The column `setting`."""
        ...

    @property
    def variant(self) -> str | None:
        """The departures from the defaults: the column `variant`."""
        ...


class Expand(Protocol):
    """Writes facts as prompts."""

    def __call__(self, facts: Facts, setting: Any, *, seed: int) -> Iterator[Expansion]:
        """All prompts of a setting, a relation at a time."""
        ...


class Matcher(Protocol):
    """Holds answers against facts."""

    def __call__(self, answers: pl.DataFrame, further: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
        """The matched tables of a relation, from its answers.

        `answers` has prompt_id, relation_id, pair_id, template_id, subject_index, and what the
        engine wrote (`text`, or the columns of `masked`). `further` are a decoder's samples
        (prompt_id, text; a row an answer), or an encoder's `priors`.
        """
        ...


@dataclass(frozen=True)
class Evidence:
    """What metrics are computed from.

    `tables` are the matched ones, of all relations. `n_failed` (relation_id, n_failed) counts the
    prompts without an answer, `n_failed_samples` those without samples; null if none were asked.
    `canary` are the greedy answers with log-probabilities; null if none were decoded twice.
    `analyses` are the names of those that are wanted beside the metrics (conf/metrics/).
    """

    facts: Facts
    setting: Any
    tables: Mapping[str, pl.DataFrame]
    n_failed: pl.DataFrame
    n_failed_samples: pl.DataFrame | None
    canary: pl.DataFrame | None
    analyses: tuple[str, ...]
    seed: int
    n_draws: int
    n_rounds: int
    n_bins: int


@dataclass(frozen=True)
class Result:
    """What was measured: `tables` has the metrics, and what `Method.measure` gave beside them.

    Every table has model, benchmark, setting and variant. `answers` loads a run's first matched
    table; there are none where runs are not compared with each other. `costs` has rows of the
    metrics table, too: runtime_hours of a setting, billions_of_parameters of a model. `cutoffs` are
    the months in which models' training data ends, where they are known. `published`
    are the numbers of the benchmark's paper, `n_tokens` counts the tokens of texts, `parse` and
    `encode` measure how different texts are; null where there are none.
    """

    facts: Facts
    tables: Mapping[str, pl.DataFrame]
    costs: pl.DataFrame
    answers: Mapping[Asking, Callable[[], pl.DataFrame]] = field(default_factory=dict)
    cutoffs: Mapping[str, str] = field(default_factory=dict)
    published: pl.DataFrame | None = None
    n_tokens: Callable[[Sequence[str]], Sequence[int]] | None = None
    parse: Parse | None = None
    encode: Encode | None = None


@dataclass(frozen=True)
class Report:
    """What is written for people, by file name; `titles` has those that a name does not say."""

    tables: Mapping[str, pl.DataFrame]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)


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
class Method:
    """A benchmark's own way.

    `matcher` is made of the facts, the name of a spaCy pipeline and what loads the tokenizer;
    `versions` says what it depends on beside its code. `matched` names the tables that it gives:
    the first has a row an answered prompt, the second, if there is one, a row a sampled prompt;
    `errors` are prompts that the model cannot answer, which are left out and not failed.
    `measured` names those that `measure` gives: `metrics`, and what figures show beside it.
    `card` is the summary that a terminal shows. Every answered prompt enters `main_metric`.
    `published` names the file of the paper's numbers. `ability` is what is asked of an engine.
    `masked` names the method that takes this one's place where the model is an encoder; null: there
    is none. `twice` measures how far answers differ that were made twice: the first, then the
    second ones. `digest` is what a page
    shows of a relation's facts, from its first matched table; null: nothing. `metrics` are those
    that have a heading or a better end.
    """

    setting: type[Any]
    sliced: Callable[[Facts, Slice], Facts]
    expand: Expand
    matched: tuple[str, ...]
    matcher: Callable[[Facts, str, Callable[[], Any]], Matcher]
    versions: Callable[[str], Mapping[str, str]]
    measured: tuple[str, ...]
    measure: Callable[[Evidence], Mapping[str, pl.DataFrame]]
    report: Callable[[Result], Report]
    card: Callable[[pl.DataFrame], pl.DataFrame]
    main_metric: str
    published: str
    ability: Ability = GENERATE
    masked: str | None = None
    twice: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame] = flip_rate
    digest: Callable[[Facts, pl.DataFrame], Digest] | None = None
    metrics: tuple[Metric, ...] = ()
