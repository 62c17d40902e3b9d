"""What the numbers on a page mean, each in a line; the formulas stand in docs/metrics.md."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from operators.metrics.estimates.direction import HIGHER_IS_BETTER


class Term(NamedTuple):
    """A metric under its heading: its name in the metrics table, and what it is."""

    metric: str
    meaning: str

    @property
    def better(self) -> str:
        """Which way is better, in words; empty: neither."""
        higher = HIGHER_IS_BETTER.get(self.metric)
        if higher is None:
            return "best at 0" if self.metric == "ovconf" else ""
        return "higher is better" if higher else "lower is better"

    @property
    def arrow(self) -> str:
        """The same as a sign."""
        return {"higher is better": "↑", "lower is better": "↓", "best at 0": "→0"}.get(
            self.better, ""
        )


_RANDOM = "what candidates in a random order would score"

TERMS: Mapping[str, Term] = MappingProxyType(
    {
        "scope": Term(
            "scope", "whether prompts share their demonstrations, or each has its own draw"
        ),
        "Acc@1": Term("acc_at_1", "share of prompts answered right, averaged over facts; 0 to 1"),
        "range": Term("fluctuation_range", "accuracy of the best draw of prompts less the worst's"),
        "SD": Term("fluctuation_sd", "standard deviation of accuracy over draws of prompts"),
        "Consist": Term("consist", "share of pairs of prompts of a fact whose answers match"),
        "Ovconf": Term("ovconf", "confidence less accuracy: above 0 is overconfident"),
        "ECE": Term("ece", "mean distance between confidence and accuracy, over bins"),
        "Brier": Term("brier", "mean squared distance between confidence and being right"),
        "AUROC": Term(
            "auroc", "chance that a right answer has the higher confidence than a wrong one"
        ),
        "one-word": Term("one_word_ratio", "share of answers that are one word"),
        "maximum": Term(
            "coverage_maximum", "share of facts right under their relation's best template"
        ),
        "oracle": Term("coverage_oracle", "share of facts right under at least one prompt"),
        "bias level": Term("bias_level", "how uneven the answers to prompts without a subject are"),
        "flip rate": Term(
            "flip_rate", "share of answers that came out differently when decoded twice"
        ),
        "P": Term("precision", "share of the given answers that are right"),
        "R": Term("recall", "share of the right answers that were given"),
        "F1": Term("f1", "harmonic mean of precision and recall"),
        "F1 of the most frequent answer": Term(
            "baseline_f1", "what always giving the relation's commonest answer would score"
        ),
        "accuracy": Term(
            "accuracy", "share of groups whose true candidate is the likeliest, in percent"
        ),
        "MRR": Term("mrr", "mean of 1 / the rank of the true candidate, in percent"),
        "NDCG": Term("ndcg", "how well the ranking agrees with the plausible order, in percent"),
        "NDCG@3": Term("ndcg_at_3", "the same over the three likeliest candidates, in percent"),
        "plausibility": Term(
            "plausibility", "mean of accuracy, MRR and NDCG over prompt types, in percent"
        ),
        "accuracy of a random order": Term("baseline_accuracy", _RANDOM),
        "plausibility of a random order": Term("baseline_plausibility", _RANDOM),
    }
)


def terms_of(headings: Iterable[str]) -> dict[str, Term]:
    """The term of each heading that has one: `range draw=pair` has that of `range`.

    >>> terms_of(["range draw=pair", "unheard of"])["range draw=pair"].metric
    'fluctuation_range'
    """
    found = {}
    for heading in headings:
        words = heading.split(" ")
        starts = (" ".join(words[:n]) for n in range(len(words), 0, -1))
        term = next((TERMS[start] for start in starts if start in TERMS), None)
        if term is not None:
            found[heading] = term
    return found
