"""The hub: .eval_results/<benchmark>.yaml of a model's repository, and a section of its card.

Source: https://huggingface.co/docs/hub/eval-results, as huggingface_hub writes and reads it.
"""

from dataclasses import dataclass
from typing import Any

import polars as pl
import yaml

from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.numbers import as_printed, numbers_of
from factsweep.pipeline.exports.exported_run import ExportedRun
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.storage.store import Store

_CARD = "model-card.md"
_NUMBERS = ("value", "ci_low", "ci_high")


@dataclass(frozen=True)
class HubResults:
    """The numbers of a run over everything, as the hub shows them."""

    exported: ExportedRun

    @property
    def rows(self) -> pl.DataFrame:
        """The defined numbers, with `better`; null: their benchmark declares no direction."""
        declared = self.exported.metric_by_name
        better = {name: metric.better or "neither" for name, metric in declared.items()}
        rows = self.exported.metrics.filter(pl.col("slice").is_null()).drop_nulls("value")
        names = pl.col("metric").replace_strict(better, default=None, return_dtype=pl.String)
        return rows.with_columns(better=names)

    @property
    def about(self) -> str:
        """What determines the numbers, in a line."""
        run, branch = self.exported, self.exported.results.branches[0]
        data, versions = run.data_set, run.record.get("versions", {})
        decoding = {name: run.sampling(branch).get(name) for name in ("temperature", "max_tokens")}
        parts = {
            "factsweep": f"{versions.get('factsweep')} at {run.record.get('commit')}",
            "run": f"{run.run['name']} ({run.id})",
            "model": f"{run.model.id} at {run.model.revision}",
            "engine": " ".join(run.engine(branch)).strip(),
            "data": f"{data.hub_id or data.name} at {data.revision}, SHA-256 {data.sha256}",
            "seed": run.run["seed"],
            **{name: value for name, value in decoding.items() if value is not None},
        }
        return "; ".join(f"{name} {value}" for name, value in parts.items())

    def entries(self, hub_id: str) -> list[dict[str, Any]]:
        """The content of the YAML: an entry per number, its setting and metric as the task."""
        from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

        entries = []
        for row in self.rows.iter_rows(named=True):
            parts = (row[name] for name in ("setting", "variant", "metric"))
            interval = "" if row["ci_low"] is None else f"95 % {row['ci_low']} to {row['ci_high']}"
            counts = f"n {row['n']}, n_failed {row['n_failed']}, better: {row['better']}"
            entry = EvalResultEntry(
                dataset_id=hub_id,
                task_id="/".join(filter(None, parts)),
                value=row["value"],
                dataset_revision=self.exported.data_set.revision,
                date=self.exported.started.isoformat(),
                notes="; ".join(filter(None, (interval, counts, self.about))),
            )
            entries.append(entry)
        return eval_result_entries_to_yaml(entries)

    def card(self) -> str:
        """A section of a model card: a table of the numbers, and what determines them."""
        numbers = numbers_of(self.exported.method.measure.metrics)
        printed = (as_printed(name, numbers=numbers).alias(name) for name in _NUMBERS)
        names = ("setting", "variant", "metric", *_NUMBERS, "better", "n", "n_failed")
        table = markdown(self.rows.with_columns(*printed).select(names))
        title = f"## {self.exported.run['benchmark']['name']} by factsweep"
        intervals = "`ci_low` and `ci_high` are 95 % bootstrap intervals over facts."
        return f"{title}\n\n{table}\n{intervals}\n\n{self.about}\n"


def export_hub(exported: ExportedRun, store: Store) -> str:
    """Write both, the YAML only of data that are on the hub; returns the path of the section."""
    results, data = HubResults(exported), exported.data_set
    if data.hub_id is None:
        message = "%s is not on the hub, and .eval_results names data there: only %s is written."
        LOG.warning(message, data.name, _CARD)
    else:
        content = yaml.safe_dump(results.entries(data.hub_id), sort_keys=False)
        store.put(f".eval_results/{exported.run['benchmark']['name']}.yaml", content.encode())
    store.put(_CARD, results.card().encode())
    return store.where(_CARD)
