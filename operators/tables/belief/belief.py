"""The headline table of BELIEF-ICL: a row a setting, a column a metric (Tables 3, 4 and 7)."""

import polars as pl

from operators.tables.shared.card import card as card_of

HEADINGS = {
    "acc_at_1": "Acc@1",
    "ci": "95 % interval",
    "fluctuation_range": "range",
    "fluctuation_sd": "SD",
    "consist": "Consist",
    "ovconf": "Ovconf",
    "ece": "ECE",
    "brier": "Brier",
    "auroc": "AUROC",
    "one_word_ratio": "one-word",
    "coverage_maximum": "maximum",
    "coverage_oracle": "oracle",
    "bias_level": "bias level",
    "objects_left_out": "objects left out",
    "flip_rate": "flip rate",
}
_NAMES = ("model", "benchmark", "setting", "variant")
_SCOPE = (
    pl.when(~pl.col("setting").str.contains(r"^\d"))
    .then(pl.lit("–"))
    .when(pl.col("variant").fill_null("").str.contains("scope=prompt"))
    .then(pl.lit("prompt"))
    .otherwise(pl.lit("shared"))
    .alias("scope")
)


def headline(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row for each model, benchmark, setting and variant, from the rows over all relations.

    `scope` says for how many prompts a demonstration was drawn. Numbers are texts with four digits,
    a dash where a number is undefined. `prompts` and `failed` count those with and without a greedy
    answer.
    """
    overall = metrics.filter(pl.col("slice").is_null())
    accuracy = overall.filter(pl.col("metric") == "acc_at_1")
    interval = pl.format("{}–{}", *(_digits(pl.col(c)) for c in ("ci_low", "ci_high")))
    names = accuracy.select(*_NAMES, prompts="n", failed="n_failed", ci=interval.fill_null("–"))
    wide = overall.pivot(
        "metric", index=_NAMES, values="value", aggregate_function="first", maintain_order=True
    )
    numbers = [_digits(pl.col(m)).fill_null("–") for m in HEADINGS if m in wide.columns]
    table = wide.select(*_NAMES, *numbers).join(
        names, on=_NAMES, how="left", nulls_equal=True, maintain_order="left"
    )
    columns = [name for name in HEADINGS if name in table.columns]
    return table.select(*_NAMES, _SCOPE, *columns, "prompts", "failed").rename(
        {name: HEADINGS[name] for name in columns}
    )


def _digits(number: pl.Expr) -> pl.Expr:
    """Four digits without the leading zero, as the papers print them: .0350, -.1119.

    >>> pl.DataFrame({"x": [0.035, -0.1119, 1.0]}).select(_digits(pl.col("x")))["x"].to_list()
    ['.0350', '-.1119', '1.0000']
    """
    text = number.map_elements(lambda value: f"{value:.4f}", return_dtype=pl.String)
    return text.str.replace(r"^(-?)0\.", "$1.")


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The same numbers for a narrow screen: a row a metric, a column a setting."""
    numbers = card_of(metrics, HEADINGS, _digits, own=("draw", "prompts"))
    scopes = {setting: _scope(setting) for setting in numbers.columns[1:]}
    return pl.concat([pl.DataFrame([{"metric": "scope", **scopes}]), numbers])


def _scope(setting: str) -> str:
    """For how many prompts a demonstration was drawn, from a setting and its variant."""
    if not setting[0].isdigit():
        return "–"
    return "prompt" if "scope=prompt" in setting else "shared"
