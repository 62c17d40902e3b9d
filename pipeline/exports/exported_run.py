"""A run for other tools: its identity, model, data, settings, metrics and answers."""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from typing import Any

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import FILL, GENERATE, Method
from factsweep.operators.metrics.shared.rows import Metric
from factsweep.operators.tables.shared.pivot import join_columns, join_names
from factsweep.operators.wording.redaction import redact
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.machine.secrets import collect_secrets
from factsweep.pipeline.results.answers import answer_parts, list_relations
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.results.results import Results
from factsweep.pipeline.stages.expand import with_text


@dataclass(frozen=True)
class DataSet:
    """The data set of a run; `sha256` is that of its files, null where it is not known.

    `hub_id` and `revision` are those of the hub; null: the run read other files.
    """

    name: str
    sha256: str | None
    hub_id: str | None = None
    revision: str | None = None
    licence: str | None = None


@dataclass(frozen=True)
class ModelIdentity:
    """A model as other tools name it: developer/name; `id` is that of the hub where it has one."""

    developer: str
    name: str
    revision: str | None
    is_open: bool

    @property
    def id(self) -> str:
        """Developer and name."""
        return f"{self.developer}/{self.name}"


@dataclass(frozen=True)
class ExportedRun:
    """What all exporters read of a run. Nothing of it holds a secret."""

    results: Results

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The content of run.json, again without secrets: the environment may know more today."""
        return dict(redact(dict(self.results.record), collect_secrets()))

    @property
    def run(self) -> Mapping[str, Any]:
        """The configuration of the run."""
        run: Mapping[str, Any] = self.record["run"]
        return run

    @property
    def method(self) -> Method:
        """The method of its benchmark."""
        return METHODS[self.run["benchmark"]["method"]]

    @property
    def metrics(self) -> pl.DataFrame:
        """The table of its numbers."""
        return self.results.metrics

    @cached_property
    def started(self) -> datetime:
        """When it began.

        Raises:
            InputError: it was written by a version that did not note it.
        """
        if not self.record.get("started"):
            raise InputError(
                f"{self.run['name']} was written by a factsweep that did not note when it began; "
                "run it again: nothing is decoded twice."
            )
        return datetime.fromisoformat(self.record["started"]).astimezone(UTC)

    @cached_property
    def id(self) -> str:
        """A UUID that follows from its artifacts and its begin: the same in each export."""
        content = json.dumps([self.record["artifacts"], self.started.isoformat()], sort_keys=True)
        return str(uuid.UUID(bytes=hashlib.sha256(content.encode()).digest()[:16], version=4))

    @cached_property
    def metric_by_name(self) -> Mapping[str, Metric]:
        """The metrics whose meaning, direction and range are declared."""
        return {metric.name: metric for metric in self.method.measure.metrics}

    @cached_property
    def model(self) -> ModelIdentity:
        """Its model; the developer of one without a hub id is where it comes from."""
        model = self.run["model"]
        revision = self.record.get("model_revision") or model.get("revision")
        if self.run["answers"]:
            return ModelIdentity("another-system", model["name"], None, is_open=False)
        name, source = model["id"].rstrip("/").rpartition("/")[2] or model["name"], model["source"]
        if source == "hub" and "/" in model["id"]:
            return ModelIdentity(model["id"].partition("/")[0], name, revision, is_open=True)
        developers = {"package": "pypi", "path": "local", "endpoint": "endpoint"}
        return ModelIdentity(developers.get(source, source), name, revision, source == "package")

    @cached_property
    def data_set(self) -> DataSet:
        """Its data, from the recipe of its facts and the catalog's entry, if that still exists."""
        benchmark = self.run["benchmark"]
        name = benchmark.get("data") or benchmark["name"]
        sha256 = self.results.branches[0].artifacts["facts"].recipe.fields.get("sha256")
        with suppress(InputError):  # an entry of the user's own may be gone
            entry = catalog.entry(name, benchmark.get("language") or "en")
            if benchmark.get("path") is None:
                is_from_hub = entry.source.kind == "hub"
                hub_id = entry.source.id if is_from_hub else None
                revision = (
                    catalog.find_fetched_commit(entry, sha256) if is_from_hub else entry.revision
                )
                return DataSet(name, sha256, hub_id, revision, entry.licence)
        return DataSet(name, sha256)

    def engine(self, branch: PastBranch) -> tuple[str, str]:
        """The engine that answered, and its version; empty where another system did."""
        software = branch.answers.recipe.fields.get("software", {}).get("engine", "")
        name, _, version = str(software or branch.answered_by).partition(" ")
        return (name, version) if software else (branch.answered_by, "")

    def sampling(self, branch: PastBranch) -> Mapping[str, Any]:
        """The parameters of decoding: temperature, top_p, max_tokens, stop; empty if none."""
        sampling: Mapping[str, Any] = branch.answers.recipe.fields.get("sampling", {})
        return sampling

    def first_prompt(self, branch: PastBranch) -> str | None:
        """The first prompt of a setting, with its demonstrations."""
        prompts = branch.artifacts["prompts"]
        for shard in prompts.shards("prompts")[:1]:
            return str(with_text(prompts, "prompts", shard)["text"][0])
        return None

    def setting_of(self, number: Mapping[str, Any]) -> str | None:
        """The setting that a row of the metrics belongs to; null: none of the run's.

        Some numbers have a variant of their own, behind that of their setting.
        """
        title = " ".join(filter(None, (number["setting"], number["variant"])))
        settings = [branch.setting for branch in self.results.branches]
        owners = [name for name in settings if re.match(rf"{re.escape(name)}(?:[ ,]|$)", title)]
        return max(owners, key=len, default=None)

    def metrics_of(self, branch: PastBranch) -> pl.DataFrame:
        """The numbers of a setting."""
        rows = self.metrics.iter_rows(named=True)
        is_own = [self.setting_of(row) == branch.setting for row in rows]
        return self.metrics.filter(pl.Series(is_own, dtype=pl.Boolean))

    def main_number(self, branch: PastBranch) -> Mapping[str, Any] | None:
        """The row of a setting's main metric over everything; null where it is undefined."""
        main_metric = self.method.measure.main_metric
        rows = self.metrics.filter(pl.col("slice").is_null(), metric=main_metric)
        rows = rows.filter(join_names("setting", "variant") == branch.setting).drop_nulls("value")
        return rows.row(0, named=True) if rows.height else None

    def answered_parts(
        self, branch: PastBranch, relation: str | None = None
    ) -> Iterator[pl.DataFrame]:
        """The answered prompts of a setting in parts: the columns of `answers`, and `score`.

        `objects` has all labels. `score` is 1 or 0 where single answers are right or wrong, else
        the score of the fact (0 to 1); null where the benchmark has none.
        """
        relations = list_relations(branch) if relation is None else [relation]
        for relation_id in relations:
            scores = self._score_facts(branch, relation_id)
            for rows in answer_parts(branch, [relation_id]):
                answer = "answer" if "answer" in rows.columns else "logprob"
                answered = rows.filter(pl.col(answer).is_not_null())
                if "correct" in rows.columns:  # null: the model cannot answer it
                    score = pl.col("correct").cast(pl.Float64)
                    yield answered.drop_nulls("correct").with_columns(score=score)
                else:
                    yield join_columns(answered, scores, ["pair_id"])

    def _score_facts(self, branch: PastBranch, relation_id: str) -> pl.DataFrame:
        """The share to which each fact of a relation was answered right: pair_id, score."""
        digest, ability = self.method.show.digest, self.method.ask.ability
        empty = pl.DataFrame(schema={"pair_id": pl.String, "score": pl.Float64})
        if digest is None or ability not in (GENERATE, FILL):
            return empty
        facts = self.results.facts
        pairs = facts.pairs.filter(relation_id=relation_id)
        shares = digest(replace(facts, pairs=pairs), branch.matched_answers(relation_id)).facts
        return shares.select("pair_id", score=pl.col("share").cast(pl.Float64))


def load_tracker(name: str, title: str) -> Any:
    """The package of a tracker, which factsweep installs only as an extra.

    Raises:
        InputError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"{title} is not installed; install it with: pip install 'factsweep[{name}]'"
        ) from error


def texts_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The values that there are, as texts: JSON, where one is no text.

    >>> texts_of({"seed": 0, "stop": ["."], "setting": "zero-shot", "adapter": None})
    {'seed': '0', 'stop': '["."]', 'setting': 'zero-shot'}
    """
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
        if value is not None
    }
