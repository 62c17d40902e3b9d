"""The fake engine: the same answers in any order."""

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.preference import BeamsRequest, PreferRequest
from factsweep.operators.engines.protocol import MaskedRequest, Request, Sampling, ScoreRequest
from factsweep.operators.prompts.label_trie import Name, Trie

TRIE = Trie.of((Name(f"Q{i}", f"{i}"), (i, i % 3)) for i in range(9))
SAMPLING = Sampling(max_tokens=5, stop=("\n",), n=25, temperature=1.0)
REQUESTS = [Request(f"p{i}", [i, i + 1], SAMPLING, seed=i) for i in range(40)]


def test_fake_any_order_gives_the_same_answers() -> None:
    forward = {a.request_id: a for a in FakeEngine().answers(REQUESTS)}
    backward = {a.request_id: a for a in FakeEngine().answers(reversed(REQUESTS))}
    assert forward == backward
    assert forward.keys() == {request.request_id for request in REQUESTS}


def test_fake_block_holds_n_answers_that_the_seed_determines() -> None:
    request, other = (Request("p", [1, 2], SAMPLING, seed) for seed in (1, 2))
    first, second = FakeEngine().answers([request, other])
    assert first.completions != second.completions
    assert len(first.completions) == 25
    assert {completion.logprob for completion in first.completions} == {None}
    sampling = Sampling(max_tokens=5, stop=(), n=25, logprobs=True)
    (answer,) = FakeEngine().answers([Request("p", [1], sampling)])
    assert all(c.logprob is not None and c.logprob <= 0 for c in answer.completions)


def test_fake_scores_only_the_text_determines_them() -> None:
    texts = [[1, 2, 3], [1, 2], [4, 2, 3]]
    requests = [ScoreRequest(f"t{i}", ids, "g", (1, 2)) for i, ids in enumerate(texts)]
    first, shorter, other = FakeEngine().scores(requests)
    assert (first, shorter, other) == tuple(reversed([*FakeEngine().scores(reversed(requests))]))
    assert first.entity_logprob == shorter.logprob != other.entity_logprob


def test_fake_prediction_is_the_likeliest_candidate() -> None:
    (prediction,) = FakeEngine().predictions([MaskedRequest("p", [1, 2], [7, 8, 9])])
    shares = dict(zip([7, 8, 9], prediction.candidate_probabilities, strict=True))
    assert prediction.probability == shares[prediction.token_id] == max(shares.values())
    assert sum(shares.values()) < 1


def test_fake_preferences_only_the_texts_determine_them() -> None:
    requests = [
        PreferRequest(f"p{i}", [i, 7], TRIE, (5,), "Q0", "exact", 3, (), frozenset({"Q8"}))
        for i in range(4)
    ]
    preferences = list(FakeEngine().preferences(requests))
    assert preferences == list(reversed([*FakeEngine().preferences(reversed(requests))]))
    assert len({preference.answer.logprob for preference in preferences}) == 4
    for preference in preferences:
        logprobs = [distractor.logprob for distractor in preference.distractors]
        assert logprobs == sorted(logprobs, reverse=True)
        assert {"Q0", "Q8"}.isdisjoint(
            distractor.entity_id for distractor in preference.distractors
        )


def test_fake_beams_are_as_many_as_are_asked_for() -> None:
    (beams,) = FakeEngine().beams([BeamsRequest("p", [1], width=3, max_tokens=9, top_tokens=2)])
    assert (len(beams.texts), len(beams.logprobs), len(beams.top_tokens)) == (3, 3, 2)
