"""Records what lm-polygraph 0.7.0 computes of 200 sets of samples, in `polygraph.json`.

It pins other versions than ours, so tests compare with the record. To make it again:

    pip install --no-deps --target /tmp/polygraph lm-polygraph==0.7.0
    .venv/bin/python -m tests.operators.metrics.belief.record_polygraph /tmp/polygraph
"""

import json
import math
import random
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

RECORD = Path(__file__).with_name("polygraph.json")
# Of those with a common part, some are linked by a third one alone.
_ANSWERS = (
    *("paris", "lyon", "rome", "oslo", "new york", "york", "the city of paris", "rome or oslo"),
    *("art", "party", "lyon in france", "city", "in france"),
)


class SampleSet(NamedTuple):
    """Sampled answers, word by word; the greedy answer's tokens, and whether it is right."""

    samples: list[list[str]]
    logprobs: list[float]
    correct: bool


def sample_sets() -> list[SampleSet]:
    """200 sets of 25 samples, the same in every call."""
    draws = random.Random(61)
    sets = []
    for _ in range(200):
        likely = draws.sample(_ANSWERS, draws.randint(1, len(_ANSWERS)))
        samples = [draws.choice(likely).split() for _ in range(25)]
        logprobs = [-draws.expovariate(2) for _ in range(draws.randint(1, 8))]
        sets.append(SampleSet(samples, logprobs, draws.random() < math.exp(sum(logprobs))))
    return sets


def is_match(left: list[str], right: list[str]) -> bool:
    """Whether one list of words is a contiguous part of the other."""
    short, long = sorted((left, right), key=len)
    return any(long[i : i + len(short)] == short for i in range(len(long)))


def connected(samples: list[list[str]], linked: Callable[..., bool]) -> list[list[int]]:
    """The samples of each cluster: those linked directly or through others."""
    clusters: list[list[int]] = []
    for index, sample in enumerate(samples):
        near = [c for c in clusters if any(linked(samples[other], sample) for other in c)]
        clusters = [c for c in clusters if c not in near] + [[*chain(*near), index]]
    return clusters


def _record(folder: str) -> dict[str, Any]:
    for name in ("", ".estimators", ".ue_metrics", ".utils"):  # without what the packages import
        package = ModuleType(f"lm_polygraph{name}")
        package.__path__ = [f"{folder}/lm_polygraph{name.replace('.', '/')}"]
        sys.modules[package.__name__] = package
    estimators = "lm_polygraph.estimators"
    entropy = import_module(f"{estimators}.semantic_entropy").SemanticEntropy(
        class_probability_estimation="frequency"
    )
    n_sets = import_module(f"{estimators}.num_sem_sets").NumSemSets()
    sequence = import_module(f"{estimators}.max_probability").MaximumSequenceProbability()
    per_token = import_module(f"{estimators}.perplexity").Perplexity()
    sets, record = sample_sets(), dict[str, Any]()
    for cluster, linked in {"equal": list.__eq__, "match": is_match}.items():
        clusters = {i: connected(each.samples, linked) for i, each in enumerate(sets)}
        cluster_of = {
            i: {sample: c for c, members in enumerate(found) for sample in members}
            for i, found in clusters.items()
        }
        entails = [[[linked(a, b) for b in each.samples] for a in each.samples] for each in sets]
        stats = {
            "sample_texts": [[" ".join(words) for words in each.samples] for each in sets],
            "semantic_classes_entail": {"class_to_sample": clusters, "sample_to_class": cluster_of},
            "semantic_matrix_entail": np.array(entails, float),
            "semantic_matrix_contra": np.full(np.shape(entails), 0.5),
        }
        record[f"entropy {cluster}"] = entropy(stats).tolist()
        record[f"sets {cluster}"] = n_sets(stats).tolist()
    stats = {"greedy_log_likelihoods": [each.logprobs for each in sets]}
    record["sequence"] = np.exp(-sequence(stats)).tolist()
    record["sequence_mean"] = np.exp(-per_token(stats)).tolist()
    return record | _record_prr(record, [float(each.correct) for each in sets])


def _record_prr(record: dict[str, Any], quality: list[float]) -> dict[str, float]:
    """The area under the curve and PRR of the two confidences without ties."""
    area = import_module("lm_polygraph.ue_metrics.pred_rej_area").PredictionRejectionArea()
    shared = import_module("lm_polygraph.ue_metrics.ue_metric")
    best, chance = area([-q for q in quality], quality), shared.get_random_scores(area, quality)
    numbers = {"area of chance": float(chance), "area of the best": float(best)}
    for kind in ("sequence", "sequence_mean"):
        value = area([-confidence for confidence in record[kind]], quality)
        numbers[f"area {kind}"] = float(value)
        numbers[f"prr {kind}"] = float(shared.normalize_metric(value, best, chance))
    return numbers


if __name__ == "__main__":
    RECORD.write_text(json.dumps(_record(sys.argv[1])) + "\n")
