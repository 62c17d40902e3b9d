"""Tables that are published: one row per number, with the model, benchmark, setting and variant."""

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

_SETTING = tuple((name, pa.string()) for name in ("model", "benchmark", "setting", "variant"))

SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType(
    {
        "metrics": pa.schema(
            [
                *_SETTING,
                ("slice", pa.string()),
                ("metric", pa.string()),
                ("value", pa.float64()),
                ("ci_low", pa.float64()),
                ("ci_high", pa.float64()),
                ("n", pa.int64()),
                ("n_failed", pa.int64()),
            ]
        ),
        "curve": pa.schema(  # Min@n and Avg@n for every n; sample: of which facts, null: of all
            [
                *_SETTING,
                ("sample", pa.string()),
                ("n", pa.int64()),
                ("min", pa.float64()),
                ("avg", pa.float64()),
                ("n_facts", pa.int64()),
            ]
        ),
        "agreement": pa.schema(  # of a configuration with people, in each fold
            [
                *_SETTING,
                ("measure", pa.string()),
                ("hyperparameters", pa.string()),
                ("n_clozes", pa.int64()),
                ("fold", pa.int64()),
                (
                    "chosen",
                    pa.bool_(),
                ),  # whether it has the highest tau on the others, over all clozes
                ("tau_others", pa.float64()),
                ("tau", pa.float64()),
                ("n", pa.int64()),
            ]
        ),
        "robustness": pa.schema(  # of a configuration, between flawed and corrected sentences
            [
                *_SETTING,
                ("measure", pa.string()),
                ("hyperparameters", pa.string()),
                ("tau", pa.float64()),
                ("n", pa.int64()),
            ]
        ),
        "bins": pa.schema(
            [
                *_SETTING,
                ("bin", pa.int64()),
                ("n", pa.int64()),
                ("mean_confidence", pa.float64()),
                ("mean_accuracy", pa.float64()),
            ]
        ),
        "estimates": pa.schema(
            [
                *_SETTING,
                ("metric", pa.string()),
                ("value", pa.float64()),
                ("full_low", pa.float64()),
                ("full_high", pa.float64()),
                ("ci_low", pa.float64()),
                ("ci_high", pa.float64()),
                ("share", pa.float64()),
                ("n", pa.int64()),
                ("why", pa.string()),
                # With a control: how many prompts would say as much without it, and its artifact.
                ("n_effective", pa.float64()),
                ("control", pa.string()),
            ]
        ),
        "estimated_templates": pa.schema(
            [
                *_SETTING,
                ("relation_id", pa.string()),
                ("template_id", pa.string()),
                ("n", pa.int64()),
                ("accuracy", pa.float64()),
                ("shrunk", pa.float64()),
                ("full_low", pa.float64()),
                ("full_high", pa.float64()),
            ]
        ),
        "variance": pa.schema(
            [
                *_SETTING,
                ("source", pa.string()),
                ("variance", pa.float64()),
                ("full_error", pa.float64()),
                ("other_error", pa.float64()),
                ("why", pa.string()),
            ]
        ),
    }
)
