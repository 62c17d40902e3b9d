"""The figure of coverage: what of a table of metrics it is drawn from."""

import polars as pl

from factsweep.operators.tables.belief.figures import coverage

SHARES = ["acc_at_1", "coverage_maximum", "coverage_oracle"]


def test_coverage_leaves_out_slices_and_other_metrics() -> None:
    run = {
        "model": "tiny",
        "setting": "zero-shot",
        "variant": None,
        "ci_low": None,
        "ci_high": None,
    }
    rows = [
        {**run, "metric": metric, "value": 0.5, "slice": part}
        for metric in (*SHARES, "consist")
        for part in (None, "relations with few names")
    ]
    assert coverage(pl.DataFrame(rows))["metric"].to_list() == SHARES
