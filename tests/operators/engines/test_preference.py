"""Preferences by the trie, against plain passes over each label: no trie, no cache, no mask."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators import seeds
from factsweep.operators.engines import preference
from factsweep.operators.engines import transformers as batched_lm
from factsweep.operators.engines.preference import (
    BeamsRequest,
    Branch,
    BranchLogprobs,
    EntityScore,
    PreferenceResult,
    PreferRequest,
    Search,
    join_branches,
    list_paths,
    log_sum,
    preferences,
    split_branches,
)
from factsweep.operators.engines.transformers import CandidatesLM
from factsweep.operators.prompts.label_trie import Name, Path, Trie

N_VOCABULARY = 12
ENDING = (0, 5)
SIZE = {"vocab_size": N_VOCABULARY, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA = {**SIZE, "hidden_size": 16, "intermediate_size": 16, "num_key_value_heads": 1}
IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
GPT2 = {"vocab_size": N_VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2}
# One whose places are counted, and one whose attention reaches back three tokens.
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "bloom": {"vocab_size": N_VOCABULARY, "hidden_size": 16, "n_layer": 2, "n_head": 2},
    "mistral": {**LLAMA, "sliding_window": 3},
}
# Nats. All is computed in float64, but for Bloom's attention, whose softmax is always in float32;
# other kernels add in another order, and each of some hundred additions may cost an epsilon.
WITHIN = {"bloom": 1e-5}

Labels = list[tuple[Name, Path]]


def make(family: str, **changes: Any) -> Any:
    """A random model that has opinions: its weights are ten times as large as new ones."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **CONFIGS[family], **IDS)
    config.update(changes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(10)
    return model


@pytest.fixture(scope="module", params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Any:
    return make(request.param)


@pytest.fixture(scope="module")
def llama() -> Any:
    return make("llama")


TOKEN = st.integers(1, N_VOCABULARY - 1)
LABELS = st.lists(
    st.tuples(st.integers(0, 7), st.lists(TOKEN, min_size=1, max_size=4)), min_size=1, max_size=24
).map(lambda rows: [(Name(f"Q{e}", " ".join(map(str, p))), tuple(p)) for e, p in rows])
CLOZES = st.lists(TOKEN, min_size=1, max_size=6)


def entities(labels: Labels) -> list[str]:
    return sorted({name.entity_id for name, _ in labels})


def ask(cloze: Sequence[int], trie: Trie, search: Any, n: int, **options: Any) -> PreferRequest:
    first, *others_ = sorted(trie.nodes_of)
    order = others_ if search == "given" else []
    return PreferRequest("x", cloze, trie, ENDING, first, search, n, order, **options)


def plain(model: Any, cloze: Sequence[int], labels: Labels) -> dict[str, EntityScore]:
    """The plausibility of each entity, a plain pass over each whole text."""
    by_entity: dict[str, list[tuple[float, float, str, int]]] = {}
    for name, path in sorted(set(labels)):
        ids = torch.tensor([[*cloze, *path]])
        with torch.inference_mode():
            rows = model(ids, use_cache=False).logits[0].log_softmax(-1)
        places = range(len(cloze), len(cloze) + len(path))
        opened = math.fsum(float(rows[place - 1, ids[0, place]]) for place in places)
        closed = opened + float(rows[-1, list(ENDING)].logsumexp(0))
        by_entity.setdefault(name.entity_id, []).append((closed, opened, name.label, len(path)))
    return {
        entity_id: EntityScore(
            entity_id, log_sum(r[0] for r in rows), log_sum(r[1] for r in rows), *max(rows)[2:]
        )
        for entity_id, rows in by_entity.items()
    }


def check(
    preference: PreferenceResult, expected: dict[str, EntityScore], *, within: float = 1e-9
) -> None:
    for entity in (preference.answer, *preference.distractors):
        plausible = expected[entity.entity_id]
        assert entity.logprob == pytest.approx(plausible.logprob, abs=within)
        assert entity.open_logprob == pytest.approx(plausible.open_logprob, abs=within)
        assert (entity.label, entity.n_tokens) == (plausible.label, plausible.n_tokens)


def most_plausible(expected: dict[str, EntityScore], request: PreferRequest) -> list[str]:
    barred = {request.answer_id, *request.left_out}
    order = sorted(expected.values(), key=lambda entity: (-entity.logprob, entity.entity_id))
    return [entity.entity_id for entity in order if entity.entity_id not in barred][: request.n]


@given(labels=LABELS, cloze=CLOZES, limit=st.sampled_from([1, 3, 8, 512]))
def test_preferences_given_equal_a_plain_pass_over_each_text(
    model: Any, labels: Labels, cloze: list[int], limit: int
) -> None:
    request = ask(cloze, Trie.of(labels), "given", 99)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched_lm, "MOST_TOKENS", limit)
        (preference_,) = CandidatesLM(model, None).preferences([request])
    within = WITHIN.get(model.config.model_type, 1e-9)
    check(preference_, plain(model, cloze, labels), within=within)
    assert [entity.entity_id for entity in preference_.distractors] == list(request.distractors)


@given(labels=LABELS, cloze=CLOZES)
def test_preferences_that_end_with_the_text_are_its_cross_entropy(
    llama: Any, labels: Labels, cloze: list[int]
) -> None:
    """`ending=eos`, the paper's: the loss of transformers over each label and the end behind it."""
    end = IDS["eos_token_id"]
    request = replace(ask(cloze, Trie.of(labels), "given", 99), ending=(end,))
    (preference_,) = CandidatesLM(llama, None).preferences([request])
    for entity in (preference_.answer, *preference_.distractors):
        nats = []
        for path in {path for name, path in labels if name.entity_id == entity.entity_id}:
            ids = torch.tensor([[*cloze, *path, end]])
            counted = torch.where(torch.arange(ids.shape[1]) < len(cloze), -100, ids)
            with torch.inference_mode():
                nats.append(-float(llama(ids, labels=counted).loss) * (len(path) + 1))
        assert entity.logprob == pytest.approx(float(torch.tensor(nats).logsumexp(0)), abs=1e-3)


def drawn(seed: int) -> Labels:
    """Forty labels of eight entities, many of which begin alike, and some of which are shared."""
    draw = random.Random(seed)
    paths = [tuple(draw.choices(range(1, 6), k=draw.randint(1, 4))) for _ in range(40)]
    return [(Name(f"Q{draw.randrange(8)}", " ".join(map(str, path))), path) for path in paths]


def test_search_optimal_gives_no_beam_to_what_is_left_out(llama: Any) -> None:
    labels = [(Name(f"Q{token}", f"{token}"), (token, 1)) for token in range(1, N_VOCABULARY)]
    likeliest = most_plausible(plain(llama, [3], labels), ask([3], Trie.of(labels), "exact", 99))
    barred = frozenset(likeliest[:-1])
    request = ask([3], Trie.of(labels), "optimal", 1, left_out=barred)
    (preference_,) = CandidatesLM(llama, None).preferences([request])
    assert [entity.entity_id for entity in preference_.distractors] == likeliest[-1:]


@given(
    labels=LABELS | st.integers(0, 99).map(drawn),
    cloze=CLOZES,
    n=st.integers(1, 8),
    left_out=st.sets(st.integers(1, 7), max_size=3),
    n_nodes=st.sampled_from([1, 64]),
)
def test_preferences_exact_are_the_best_of_all_labels_and_optimal_never_exceeds_them(
    llama: Any, labels: Labels, cloze: list[int], n: int, left_out: set[int], n_nodes: int
) -> None:
    barred, trie = frozenset(f"Q{number}" for number in left_out), Trie.of(labels)
    requests = [ask(cloze, trie, search, n, left_out=barred) for search in ("exact", "optimal")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preference, "_NODES_AT_ONCE", n_nodes)
        exact, optimal = CandidatesLM(llama, None).preferences(requests)
    expected = plain(llama, cloze, labels)
    check(exact, expected)
    check(optimal, expected)
    assert [e.entity_id for e in exact.distractors] == most_plausible(expected, requests[0])
    assert barred.isdisjoint(e.entity_id for e in optimal.distractors)
    logprobs = [entity.logprob for entity in optimal.distractors]
    assert logprobs == sorted(logprobs, reverse=True)
    for beam, best in zip(optimal.distractors, exact.distractors, strict=False):
        assert beam.logprob <= best.logprob + 1e-9


@given(labels=LABELS, cloze=CLOZES)
def test_preferences_optimal_as_wide_as_the_labels_are_exact(
    llama: Any, labels: Labels, cloze: list[int]
) -> None:
    trie = Trie.of(labels)
    preference_ = CandidatesLM(llama, None).preferences(
        ask(cloze, trie, search, len(labels)) for search in ("exact", "optimal")
    )
    exact, optimal = (preferred.distractors for preferred in preference_)
    assert [entity.entity_id for entity in optimal] == [entity.entity_id for entity in exact]
    for entity, other in zip(optimal, exact, strict=True):
        assert entity.logprob == pytest.approx(other.logprob, abs=1e-9)


@given(labels=LABELS, cloze=CLOZES, data=st.data())
def test_preferences_any_order_of_candidates_gives_the_same_values(
    llama: Any, labels: Labels, cloze: list[int], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(labels))
    tries = Trie.of(labels), Trie.of(shuffled)
    first, second = CandidatesLM(llama, None).preferences(
        ask(cloze, trie, "exact", 3) for trie in tries
    )
    assert second == first


@given(labels=LABELS, cloze=st.lists(TOKEN, min_size=2, max_size=6))
def test_preferences_cloze_that_merges_with_labels_is_subtracted(
    llama: Any, labels: Labels, cloze: list[int]
) -> None:
    """A label's log-probability is that of its text less that of the cloze."""
    *shared, last = cloze
    (preference_,) = CandidatesLM(llama, None).preferences(
        [ask(shared, Trie.of(labels, (last,)), "given", 99)]
    )
    of_cloze = plain(llama, shared, [(Name("cloze", ""), (last,))])["cloze"].open_logprob
    for entity in (preference_.answer, *preference_.distractors):
        its = plain(llama, shared, labels)[entity.entity_id]
        assert entity.logprob == pytest.approx(its.logprob - of_cloze, abs=1e-9)


def test_preferences_text_longer_than_a_window_equal_a_plain_pass() -> None:
    model = make("mistral", sliding_window=12)
    labels, cloze = drawn(0), [place % 11 + 1 for place in range(30)]
    request = ask(cloze, Trie.of(labels), "given", 99)
    (preference_,) = CandidatesLM(model, None).preferences([request])
    check(preference_, plain(model, cloze, labels))


def test_search_exact_does_not_read_what_cannot_count(llama: Any) -> None:
    """Of 11³ labels, most of those behind an unlikely token are left unread."""
    tokens = range(1, N_VOCABULARY)
    paths = [(a, b, c) for a in tokens for b in tokens for c in tokens]
    trie = Trie.of((Name(f"{path}", ""), path) for path in paths)
    exact, everything = CandidatesLM(llama, None).preferences(
        ask([3], trie, "exact", n) for n in (2, len(paths))
    )
    assert everything.n_prompt_tokens == len(trie.tokens)
    assert exact.n_prompt_tokens < len(trie.tokens) / 2
    assert [e.entity_id for e in exact.distractors] == [
        e.entity_id for e in everything.distractors[:2]
    ]


@pytest.mark.parametrize("cloze", [[6, 7], [9, 1], [9, 7]])
def test_beams_of_uneven_lengths_are_in_the_order_of_their_sums(
    llama: Any, cloze: list[int]
) -> None:
    request = BeamsRequest("x", cloze, 6, max_tokens=5, top_tokens=1)
    (preference_,) = CandidatesLM(llama, _Digits()).beams([request])
    assert any(text.endswith("0 0") for text in preference_.texts)
    assert list(preference_.logprobs) == sorted(preference_.logprobs, reverse=True)


@pytest.mark.parametrize("width", [1, 3])
def test_beams_are_the_likeliest_continuations(llama: Any, width: int) -> None:
    request = BeamsRequest("x", [3, 4], width, max_tokens=2, top_tokens=4)
    (preference_,) = CandidatesLM(llama, _Digits()).beams([request])
    texts = {f"{a} {b}": (a, b) for a in range(1, N_VOCABULARY) for b in range(N_VOCABULARY)}
    assert len(preference_.texts) == len(preference_.logprobs) == width
    for text, logprob in zip(preference_.texts, preference_.logprobs, strict=True):
        if text in texts:
            rows = plain(llama, [3, 4], [(Name("x", ""), texts[text])])
            assert logprob == pytest.approx(rows["x"].open_logprob, abs=1e-6)
    with torch.inference_mode():
        first = llama(torch.tensor([[3, 4]])).logits[0, -1].topk(4).indices.tolist()
    assert preference_.top_tokens == [str(token) for token in first]


class _Digits:
    """A tokenizer that names tokens by their numbers."""

    eos_token_id = 0

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return [" ".join(str(int(token)) for token in row) for row in rows]


END = (1, 2)
FEW = st.integers(3, 6)
FEW_LABELS = st.lists(
    st.tuples(st.integers(0, 5), st.lists(FEW, min_size=1, max_size=3)), min_size=2, max_size=12
).map(lambda rows: [(Name(f"Q{e}", str(path)), tuple(path)) for e, path in rows])
SEARCHES: tuple[Search, ...] = ("given", "exact", "optimal")


class Model:
    """Says of every token behind a text what the two determine; counts how often it is asked."""

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, branches: Sequence[Branch]) -> list[BranchLogprobs]:
        self.n_calls += 1
        parts = (
            (index, {token: -float(seeds.key(*text, token) % 1000) / 100 for token in tokens})
            for index, text, tokens in split_branches(branches)
        )
        return join_branches(branches, parts)


def request(name: str, labels: list[tuple[Name, tuple[int, ...]]], search: Search) -> PreferRequest:
    trie = Trie.of(labels)
    first, *further = sorted(trie.nodes_of)
    cloze = [int(name), 7]
    distractors = further if search == "given" else ()
    return PreferRequest(name, cloze, trie, END, first, search, 2, distractors)


@given(st.lists(st.tuples(FEW_LABELS, st.sampled_from(SEARCHES)), max_size=7), st.integers(1, 4))
def test_preferences_together_are_those_of_each_alone(
    searches: list[tuple[list[tuple[Name, tuple[int, ...]]], Search]], n_at_once: int
) -> None:
    requests = [request(str(i), *arguments) for i, arguments in enumerate(searches)]
    by_id = {
        preferred.request_id: preferred
        for preferred in preferences(requests, Model(), n_at_once=n_at_once)
    }
    one_by_one = (preferences([single], Model()) for single in requests)
    assert by_id == {preferred.request_id: preferred for (preferred,) in one_by_one}


@given(st.lists(FEW_LABELS, min_size=1, max_size=3), st.sampled_from(SEARCHES))
def test_paths_have_each_branch_once_and_are_as_few_as_texts_that_none_extends(
    label_sets: list[list[tuple[Name, tuple[int, ...]]]], search: Search
) -> None:
    model = Model()

    def read(branches: Sequence[Branch]) -> list[BranchLogprobs]:
        paths = list_paths(branches)
        assert sorted(chain.from_iterable(paths)) == list(range(len(branches)))
        for path in paths:
            for shorter, longer in pairwise(branches[i].text for i in path):
                assert longer[:-1] == shorter
        texts = [tuple(branch.text) for branch in branches]
        parents = Counter(text[:-1] for text in texts)
        assert len(paths) == (Counter(texts) - parents).total()
        return model(branches)

    # Clozes may be equal: then their texts are.
    requests = [request(str(i % 2), labels, search) for i, labels in enumerate(label_sets)]
    assert len(list(preferences(requests, read))) == len(requests)


@pytest.mark.parametrize("search", SEARCHES)
def test_preferences_of_several_clozes_take_as_many_calls_as_one(search: Search) -> None:
    labels = [(Name(f"Q{i}", str(i)), (3 + i % 3, 4 + i)) for i in range(9)]
    single = request("1", labels, search)
    of_one, of_eight = Model(), Model()
    list(preferences([single], of_one, n_at_once=8))
    results = list(
        preferences([replace(single, request_id=f"{i}") for i in range(8)], of_eight, n_at_once=8)
    )
    assert of_eight.n_calls == of_one.n_calls
    assert len(results) == 8
    assert all(math.isfinite(result.answer.logprob) for result in results)
