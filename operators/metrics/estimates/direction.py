"""Which way is better, metric by metric."""

from collections.abc import Mapping
from types import MappingProxyType

_HIGHER = (
    *("acc_at_1", "consist", "one_word_ratio", "auroc"),
    *("coverage_oracle", "coverage_robust", "coverage_maximum"),
    *("precision", "recall", "f1", "f1_relation_mean"),
    *("accuracy", "mrr", "ndcg", "ndcg_binary", "ndcg_at_3"),
    *("plausibility", "plausibility_published"),
)
_LOWER = (
    *("brier", "ece", "fluctuation_range", "fluctuation_sd", "flip_rate"),
    *("year_error_mean", "year_error_median"),
)

# A metric that is not here has no better end: ovconf, for one, is best at 0.
HIGHER_IS_BETTER: Mapping[str, bool] = MappingProxyType(
    {**dict.fromkeys(_HIGHER, True), **dict.fromkeys(_LOWER, False)}
)
