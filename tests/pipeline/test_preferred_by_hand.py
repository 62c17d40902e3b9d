"""The distractor measure of a real model, against plain passes: no trie, one label at a time.

Facts of the base that ships with the project are scored here by code of its own: distractors from
the definition of Omega, log-softmax summed over a label's tokens and an ending, K by counting.
"""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest

from factsweep.operators.engines import transformers
from factsweep.operators.engines.protocol import Start
from factsweep.operators.prompts.clozes import chances
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.plan import Branch, Plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MOST = 1e-3  # nats, of a sum over a few tokens in float32
N = 20
RETRIEVALS = ("random", "semantic", "temporal", "optimal", "exact")
OVERRIDES = (
    "benchmark=distractors-mini",
    "benchmark.relations=[P36,P37]",
    "benchmark.pairs_per_relation=2",
    f"prompt.n={N}",
    "prompt.n_clozes=1",
    "decoding.canary_prompts=2",
    "decoding.baselines.others=2",
    "metrics.n_rounds=10",
    "model=smollm2-135m",
    "model.dtype=float32",
)
Entities = dict[str, tuple[set[str], list[str]]]  # types and labels


@pytest.fixture(scope="module")
def base() -> Entities:
    """The knowledge base as it ships."""
    folder = Path("data_catalog/mini/distractors-mini")
    rows = pl.read_parquet(folder / "entities.parquet").select("entity_id", "types", "labels")
    return {entity: (set(types), labels) for entity, types, labels in rows.iter_rows()}


@pytest.fixture(scope="module")
def triples() -> list[dict[str, Any]]:
    folder = Path("data_catalog/mini/distractors-mini")
    return pl.read_parquet(folder / "triples.parquet").to_dicts()


@pytest.fixture(scope="module")
def computed(
    smollm2: Weights, compute_here: Callable[..., Plan], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Branch]:
    """The same facts in every setting."""
    folder = tmp_path_factory.mktemp("by-hand")
    start = Start(
        models.location(smollm2), None, dtype="float32", max_model_len=256, ability="prefer"
    )
    engine = transformers.load(start)
    branches = {}
    for retrieval in RETRIEVALS:
        overrides = [*OVERRIDES, f"prompt={retrieval}", f"artifacts={folder}"]
        (branches[retrieval],) = compute_here(load(overrides), engine).branches
    return branches


class Plain:
    """The model, asked for one text at a time."""

    def __init__(self, folder: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.reads = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.ends = [
            token
            for token in range(len(self.reads))
            if token == self.reads.eos_token_id or ends(self.reads.decode([token]))
        ]

    @cache  # noqa: B019
    def logprobs(self, cloze: str, label: str) -> tuple[float, float]:
        """Of a label behind a cloze; then with an ending."""
        import torch

        ids = self.reads(f"{cloze} {label}").input_ids
        begin = len(self.reads(cloze).input_ids)
        assert ids[:begin] == self.reads(cloze).input_ids
        with torch.inference_mode():
            rows = self.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        logprob = sum(float(rows[place - 1, ids[place]]) for place in range(begin, len(ids)))
        return logprob, logprob + math.log(float(rows[-1, self.ends].exp().sum()))

    def plausibility(self, cloze: str, labels: list[str]) -> float:
        """In nats, over all labels."""
        return math.log(
            sum(math.exp(self.logprobs(cloze, label)[1]) for label in dict.fromkeys(labels))
        )


def ends(token: str) -> bool:
    """Whether a token begins a line end or a full stop with nothing but closing marks behind."""
    if token.lstrip(" \t")[:1] in ("\n", "\r"):
        return True
    return token[:1] == "." and not token[1:].rstrip().strip(".\u2026\"'\u2019\u201d\u00bb)]")


@pytest.fixture(scope="module")
def plain(smollm2: Weights) -> Plain:
    return Plain(models.location(smollm2))


def omega(base: Entities, triples: list[dict[str, Any]], pair: dict[str, Any]) -> list[str]:
    """All distractors of a fact, from the definition."""
    answer = pair["objects"][0]["object_id"]
    types, labels = base[answer]
    fold = {label.casefold() for label in labels}
    right = {
        row["object_id"]
        for row in triples
        if (row["subject_id"], row["relation_id"]) == (pair["subject_id"], pair["relation_id"])
        and row["end"] is None
    }
    return [
        entity
        for entity, (its_types, its_labels) in base.items()
        if entity != answer
        and entity not in right
        and its_types & types
        and not fold & {label.casefold() for label in its_labels}
    ]


@pytest.mark.parametrize(
    "retrieval",
    [
        pytest.param(e, marks=pytest.mark.chaos if e in ("exact", "random") else ())
        for e in RETRIEVALS
    ],
)
def test_setting_by_hand_is_that_of_the_run(
    computed: dict[str, Branch],
    plain: Plain,
    base: Entities,
    triples: list[dict[str, Any]],
    retrieval: str,
) -> None:
    branch = computed[retrieval]
    prompts = {row["prompt_id"]: row for row in branch.prompts.read_all("prompts").to_dicts()}
    pairs = {row["pair_id"]: row for row in facts_stage.load(branch.facts).pairs.to_dicts()}
    beaten: list[list[bool]] = []
    for row in branch.answers.read_all("preferences").to_dicts():
        prompt = prompts[row["prompt_id"]]
        cloze, pair = prompt["query"], pairs[prompt["pair_id"]]
        candidates = omega(base, triples, pair)
        right = plain.plausibility(cloze, base[prompt["answer_id"]][1])
        assert row["logprob"] == pytest.approx(right, abs=MOST)
        ids = [distractor["entity_id"] for distractor in row["distractors"]]
        assert set(ids) <= set(candidates)
        if retrieval != "optimal":  # whose beam may hold several labels of an entity
            assert len(ids) == min(N, len(candidates))
        scores = [distractor["logprob"] for distractor in row["distractors"]]
        logprobs_here = [plain.plausibility(cloze, base[distractor][1]) for distractor in ids]
        assert scores == pytest.approx(logprobs_here, abs=MOST)
        if retrieval == "exact":
            all_logprobs = [
                plain.plausibility(cloze, base[distractor][1]) for distractor in candidates
            ]
            assert logprobs_here == pytest.approx(sorted(all_logprobs, reverse=True)[:N], abs=MOST)
        beaten.append([right > distractor for distractor in logprobs_here])
    metrics = branch.metrics.read_all("metrics").filter(pl.col("slice").is_null())
    numbers = dict(metrics.select("metric", "value").iter_rows())
    for n in (1, 2, 5, 10, 20):
        of_facts = [wins[:n] for wins in beaten if len(wins) >= n]
        assert numbers[f"min_at_{n}"] == pytest.approx(mean(map(all, of_facts)))
        assert numbers[f"avg_at_{n}"] == pytest.approx(mean(map(mean, of_facts)))
        assert numbers[f"left_out_at_{n}"] == len(beaten) - len(of_facts)


def test_optimal_finds_the_most_plausible_that_exact_finds(computed: dict[str, Branch]) -> None:
    """The beam is as wide as distractors are asked for: it may miss some of the last ones."""
    for optimal, other in zip(
        *(
            computed[retrieval].answers.read_all("preferences")["distractors"]
            for retrieval in RETRIEVALS[3:]
        ),
        strict=True,
    ):
        best = [
            [retrieval["entity_id"] for retrieval in distractors][:5]
            for distractors in (optimal, other)
        ]
        assert best[0] == best[1]


def test_chances_by_hand_are_those_of_the_run(
    computed: dict[str, Branch], plain: Plain, base: Entities
) -> None:
    branch = computed["random"]
    facts = facts_stage.load(branch.facts)
    answers = {
        pair: objects[0]["object_id"]
        for pair, objects in facts.pairs.select("pair_id", "objects").iter_rows()
    }
    rows = {row["pair_id"]: row for row in branch.matched.read_all("by_chance").to_dicts()}
    for relation in ("P36", "P37"):
        for pair_id, clozes in chances(facts, relation, 2, seed=0).items():
            for kind in ("subjects", "relations"):
                expected = [
                    math.log(
                        sum(
                            math.exp(plain.logprobs(cloze, label)[0])
                            for label in dict.fromkeys(base[answers[pair_id]][1])
                        )
                    )
                    for cloze in getattr(clozes, kind)
                ]
                assert expected
                assert rows[pair_id][kind] == pytest.approx(expected, abs=MOST)
