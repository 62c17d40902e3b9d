"""Past runs: what was asked and measured, by the folders of results, and where artifacts are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Method
from factsweep.operators.metrics.shared.rows import mean_over_seeds, over_seeds
from factsweep.operators.schemas import empty
from factsweep.operators.tables.shared.wide import join_columns
from factsweep.operators.wording import join_list, suggestion
from factsweep.operators.wording.names import check_apart, check_run, fold_name
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import run_of_record
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results.record import ESTIMATE, METRICS, NAME, file, read
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import relation_of, with_text
from factsweep.pipeline.storage import integrity
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.json_files import Stored
from factsweep.pipeline.storage.lookup import open_artifact
from factsweep.pipeline.storage.shard import Place, decode
from factsweep.pipeline.storage.store import Store

Record = Mapping[str, Any]
# Tables of seeds whose numbers are means over `n` rows each; `n` is what names a row of others.
_WEIGHTED = ("bins",)
_ANSWER = {"text": "answer", "token": "answer"}  # as a decoder and an encoder give it


@dataclass(frozen=True)
class PastBranch:
    """One setting of a past run, and its artifacts by stage; `further`: blocks of samples."""

    run: str
    model: str
    benchmark: str
    method: str
    setting: str
    billions_of_parameters: float | None
    training_cutoff: str | None
    artifacts: dict[str, Artifact]
    record: Mapping[str, Any]
    further: tuple[Artifact, ...] = ()

    @property
    def seed(self) -> int:
        """The seed of all that was drawn."""
        return int(self.record["run"]["seed"])

    @property
    def metrics(self) -> Artifact:
        """Its metrics."""
        return self.artifacts["metrics"]

    @property
    def how(self) -> Method:
        """How its benchmark is asked, measured and shown."""
        return METHODS[self.method]

    @property
    def facts(self) -> Facts:
        """The facts that it asked, read anew."""
        return facts_stage.load(self.artifacts["facts"])

    @property
    def answers(self) -> Artifact:
        """The answers to all its prompts, or the scores of their texts."""
        return self.artifacts[self.how.ask.ability.answers]

    @property
    def relations(self) -> list[str]:
        """The relations that it has matched answers of."""
        return self.artifacts["matched"].shards(self.how.measure.answers)

    def matched_answers(self, relation_id: str | None = None) -> pl.DataFrame:
        """The matched answers to its prompts, or to those of a relation."""
        matched, table = self.artifacts["matched"], self.how.measure.answers
        return matched.read_all(table) if relation_id is None else matched.read(table, relation_id)

    def matched(self, relation_id: str) -> dict[str, pl.DataFrame]:
        """The matched tables that there are of a relation, by name."""
        artifact = self.artifacts["matched"]
        return {
            table: artifact.read(table, relation_id)
            for table in self.how.measure.matched
            if relation_id in artifact.shards(table)
        }

    def __str__(self) -> str:
        """As in messages."""
        return f"{self.model}, {self.setting} on {self.benchmark}"


def branches(results: str, names: Sequence[str] = ()) -> list[PastBranch]:
    """The settings of the named runs, or of all, each once: runs may share artifacts.

    Raises:
        InputError: there are none.
    """
    found: dict[str, PastBranch] = {}
    for name in names or known(results):
        for branch in settings(name, record(results, name)):
            found.setdefault(branch.metrics.folder, branch)
    if not found:
        raise InputError(f"{results} has no run with a run.json; run something first.")
    return list(found.values())


def by_title(results: str, name: str) -> dict[str, PastBranch]:
    """The settings of a run that was asked all of its prompts, by title.

    Raises:
        InputError: there is no such run.
    """
    return {each.setting: each for each in branches(results, [name])}


def known(results: str, name: str = NAME) -> list[str]:
    """The names of the runs that there are, or that have another file; not those of nights."""
    store = Store(results)
    return [run for run in store.folders("") if name in store.names(run)]


def runs(results: str, name: str) -> list[str]:
    """The runs that a name stands for: the run itself, or those of a night, which are below it.

    Raises:
        InputError: there is no such run.
    """
    store = Store(results)
    below = [f"{name}/{each}" for each in store.folders(name)]
    found = [each for each in (name, *below) if NAME in store.names(each)]
    if not found:
        raise _unknown(results, name)
    return found


def estimated(results: str, name: str) -> list[str]:
    """Of the run of a name, or of those of a night, the ones that asked a part of their prompts."""
    store = Store(results)
    below = (f"{name}/{each}" for each in store.folders(name))
    return [each for each in (name, *below) if ESTIMATE in store.names(each)]


def record(results: str, name: str) -> Record:
    """What a run wrote down: its run.json.

    Raises:
        InputError: there is no such run.
        DamagedFileError: it is not what was written.
    """
    try:
        found = read(Store(below(results, name)))
    except FileNotFoundError as error:
        raise _unknown(results, name) from error
    if (written := found["run"]["name"]) != name:
        LOG.warning("%s/%s holds the results of the run %s.", results, name, written)
    return found


def is_done(results: str, name: str) -> bool:
    """Whether there is a run of that name, or one that estimated."""
    store = Store(below(results, name))
    return store.exists(NAME) or store.exists(ESTIMATE)


def run_of(results: str, name: str) -> Run:
    """A run that is done, or that estimated, as it was configured; its results lie in `results`.

    Raises:
        InputError: there is no such run.
        DamagedFileError: what it wrote down is not what was written.
    """
    check_run(name)
    store = Store(below(results, name))
    part = store.exists(ESTIMATE) and not store.exists(NAME)
    found = read(store, ESTIMATE) if part else record(results, name)
    places = {"results": results, "artifacts": found["run"]["artifacts"]}
    return replace(run_of_record(found["run"]), name=name, **places)


def check_free(results: str, name: str) -> None:
    """Refuse the name of a run that some file systems take for that of another."""
    store, parts = Store(results), name.split("/")
    for depth, part in enumerate(parts):
        there = store.folders("/".join(parts[:depth]))
        alike = [each for each in there if fold_name(each) == fold_name(part)]
        check_apart([*alike, part], f"the runs in {store.where()}:")


def _unknown(results: str, name: str) -> InputError:
    if estimated(results, name):
        return InputError(
            f"{name} in {results} has estimates from a part of the prompts, where a full run is "
            "needed; run it without budget=: no prompt is asked twice."
        )
    there = known(results)
    return InputError(
        f"{results} has no run {name}; it has {join_list(there)}.{suggestion(name, there)}"
    )


def settings(name: str, content: Record) -> Iterator[PastBranch]:
    """The settings that a run measured, as its record says.

    Raises:
        InputError: an artifact of one is gone.
        DamagedFileError: one was made of answers that are no more, or is not what was written.
    """
    store = Store(content["run"]["artifacts"])
    for title, folders in content["artifacts"].items():
        artifacts = [open_artifact(store, folder) for folder in folders]
        for artifact in artifacts:
            if not artifact.is_complete():
                raise InputError(
                    f"{store.where(artifact.folder)} of the run {name} is not complete; "
                    "run it again."
                )
        for found in integrity.find_outdated(artifacts):
            raise DamagedFileError(found.sentence, found.name)
        yield setting(name, content, title, artifacts)


def setting(name: str, content: Record, title: str, artifacts: Iterable[Artifact]) -> PastBranch:
    """One setting of a run, by its title."""
    run, found = content["run"], list(artifacts)
    further = METHODS[run["benchmark"]["method"]].ask.ability.further
    return PastBranch(
        run=name,
        model=run["model"]["name"],
        benchmark=run["benchmark"]["name"],
        method=run["benchmark"]["method"],
        setting=title,
        billions_of_parameters=run["model"]["billions_of_parameters"],
        training_cutoff=run["model"].get("training_cutoff"),
        artifacts={each.stage: each for each in found},
        further=tuple(each for each in found if each.stage in further),
        record=content,
    )


def by_setting(branches: Iterable[PastBranch]) -> dict[str, list[PastBranch]]:
    """The seeds of each setting of each model, in order."""
    found: dict[str, list[PastBranch]] = {}
    for branch in branches:
        found.setdefault(str(branch), []).append(branch)
    return {name: sorted(each, key=lambda one: one.seed) for name, each in found.items()}


def answered(metrics: pl.DataFrame, method: Method) -> tuple[int, int]:
    """How many prompts of a setting have an answer, and how many have none."""
    row = metrics.filter(metric=method.measure.main_metric).filter(pl.col("slice").is_null())
    n, failed = row.select("n", "n_failed").row(0)
    return int(n), int(failed)


def metrics(store: Store, content: Record) -> pl.DataFrame:
    """Every number of a run, from its results: one row per metric, setting and slice.

    Raises:
        DamagedFileError: the file is gone, or is not what the run wrote.
    """
    numbers = file(store, METRICS, content)
    return decode(numbers, Place("metrics", "", "metrics"), Stored(store.where(METRICS)))


def of_seeds(settings: Iterable[Sequence[PastBranch]], table: str) -> pl.DataFrame:
    """A measured table of settings, each with its seeds; several seeds are one row."""
    tables = [[branch.metrics.read_all(table) for branch in each] for each in settings]
    if all(len(each) == 1 for each in tables):
        return pl.concat([found for each in tables for found in each])
    if table == "metrics":
        return pl.concat(map(over_seeds, tables))
    weight = "n" if table in _WEIGHTED else None
    return pl.concat(mean_over_seeds(each, weight=weight) for each in tables)


def answers(branch: PastBranch, relation: str | None = None) -> pl.DataFrame:
    """All prompts of a setting, or those of one relation, by their ids.

    Columns: model, setting, prompt_id, relation_id, relation, pair_id, subject, objects (a label
    of each right answer), template_id, template, prompt, what the engine gave (`answer`, or
    `logprob` in nats), and `correct` where the benchmark judges single answers. A prompt without an
    answer has nulls there. Of a model that thinks first, `thought` too.

    Raises:
        InputError: the run asked nothing of that relation, or an artifact of it is gone.
    """
    prompts, said = branch.artifacts["prompts"], branch.answers
    shards = prompts.shards("prompts")
    known = list(dict.fromkeys(map(relation_of, shards)))
    if relation is not None and relation not in known:
        raise InputError(f"{branch} asked nothing of {relation}; it asked of {', '.join(known)}.")
    mine = [shard for shard in shards if relation in (None, relation_of(shard))]
    asked = pl.concat([with_text(prompts, "prompts", shard) for shard in mine])
    # A prompt of another relation may have had the same text: then it alone was asked.
    others = {*asked["same_as"].drop_nulls().str.split(".").list.first()}
    where = [shard for shard in shards if shard in mine or relation_of(shard) in others]
    given = pl.concat([said.read(said.stage, shard) for shard in where])
    if not set(where).isdisjoint(said.published("thoughts")):
        given = join_columns(given, thoughts(said, where), ["prompt_id"])
    own = pl.col("prompt_id").is_in(given["prompt_id"].implode())
    asked_as = pl.when(own).then("prompt_id").otherwise(pl.coalesce("same_as", "prompt_id"))
    told = _facts(asked.rename({"text": "prompt"}), branch.facts).with_columns(asked_as=asked_as)
    answered = given.rename({**_ANSWER, "prompt_id": "asked_as"}, strict=False)
    rows = join_columns(told, answered, ["asked_as"]).drop("asked_as")
    named = {"model": branch.model, "setting": branch.setting}
    matched = branch.matched_answers()
    if {"prompt_id", "correct"} <= {*matched.columns}:
        rows = join_columns(rows, matched.select("prompt_id", "correct"), ["prompt_id"])
    return rows.select(*(pl.lit(v).alias(n) for n, v in named.items()), pl.all())


def thoughts(said: Artifact, shards: Iterable[str]) -> pl.DataFrame:
    """What was thought before each answer: prompt_id, thought; no rows where a model does not."""
    there = set(shards).intersection(said.published("thoughts"))
    rows = pl.concat([empty("thoughts"), *(said.read("thoughts", each) for each in sorted(there))])
    return rows.select("prompt_id", thought=pl.col("texts").list.first())


def _facts(asked: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    first_label = pl.element().struct.field("labels").list.first()
    objects = pl.col("objects").list.eval(first_label)
    pairs = facts.pairs.select("pair_id", "relation_id", "subjects", objects=objects)
    relations = facts.relations.rename({"label": "relation"})
    templates = facts.templates.select("template_id", template="text")
    rows = join_columns(join_columns(asked, pairs, ["pair_id"]), relations, ["relation_id"])
    rows = join_columns(rows, templates, ["template_id"])
    subject = pl.col("subjects").list.get(pl.col("subject_index"), null_on_oob=True)
    ids = ("prompt_id", "same_as", "relation_id", "relation", "pair_id")
    shown = ("objects", "template_id", "template", "prompt")
    return rows.select(*ids, subject.alias("subject"), *shown)
