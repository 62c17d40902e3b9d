"""A fake engine for tests of scheduling and faults: a pure function of the prompt and the seed."""

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from factsweep.operators import seeds
from factsweep.operators.engines.preference import (
    Beams,
    BeamsRequest,
    Branch,
    BranchLogprobs,
    PreferenceResult,
    PreferRequest,
    preferences,
)
from factsweep.operators.engines.protocol import (
    Answer,
    Completion,
    EngineKind,
    MaskedRequest,
    Prediction,
    Request,
    Scored,
    ScoreRequest,
    Start,
    Thought,
)

T = TypeVar("T", Request, ScoreRequest, MaskedRequest, PreferRequest, BeamsRequest)

WISH = "FACTSWEEP_FAKE_ENGINE"
_WORDS = ("Paris", "a river", "Europe", "", "the capital", "French", "1969", "guitars")


class FakeEngine:
    """Answers with one of eight fixed texts; `witness` is called before with each prompt's id."""

    def __init__(
        self, seconds_per_answer: float = 0.0, witness: Callable[[str], None] | None = None
    ) -> None:
        self._seconds_per_answer = seconds_per_answer
        self._witness = witness

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer for each request, in their order."""
        for request in self._witness_requests(requests):
            completions = [self._complete(request, i) for i in range(request.sampling.n)]
            yield Answer(request.request_id, tuple(completions), len(request.token_ids), 0)

    def _complete(self, request: Request, index: int) -> Completion:
        draw = seeds.key(request.token_ids, request.seed, index)
        text = _WORDS[draw % len(_WORDS)]
        logprob = -float(draw % 1000) / 1000 if request.sampling.logprobs else None
        is_thinking = request.thinking is not None
        thought = Thought(f"{draw} is a number", 4, "itself") if is_thinking else None
        return Completion(text, len(text.split()), logprob, "stop", thought)

    def scores(self, requests: Iterable[ScoreRequest]) -> Iterator[Scored]:
        """One score for each request, in their order."""
        for request in self._witness_requests(requests):
            ends = range(2, len(request.token_ids) + 1)
            logprobs = [-_share(request.token_ids[:end]) for end in ends]
            yield Scored.of(request, logprobs, n_cached_tokens=0)

    def predictions(self, requests: Iterable[MaskedRequest]) -> Iterator[Prediction]:
        """One prediction for each request, in their order: some candidate of it."""
        for request in self._witness_requests(requests):
            draws = [_share(request.token_ids, token_id) for token_id in request.candidate_ids]
            shares = [draw / (1 + sum(draws)) for draw in draws]
            best = max(range(len(shares)), key=shares.__getitem__)
            token_id = request.candidate_ids[best]
            yield Prediction(request.request_id, token_id, str(token_id), shares[best], shares)

    def preferences(self, requests: Iterable[PreferRequest]) -> Iterator[PreferenceResult]:
        """One answer for each request, in their order; the search is the real one."""
        for request in self._witness_requests(requests):
            read = partial(_read_branches, len(request.token_ids))
            yield from preferences([request], read, reuses_cloze=True)

    def beams(self, requests: Iterable[BeamsRequest]) -> Iterator[Beams]:
        """One answer for each request, in their order."""
        for request in self._witness_requests(requests):
            draws = [seeds.key(request.token_ids, i) for i in range(request.width)]
            texts = [_WORDS[draw % len(_WORDS)] for draw in draws]
            logprobs = [-float(i + 1) for i in range(request.width)]
            tokens = [_WORDS[i % len(_WORDS)] for i in range(request.top_tokens)]
            n = len(request.token_ids)
            yield Beams(request.request_id, texts, logprobs, tokens, n, n_tokens=1)

    def _witness_requests(self, requests: Iterable[T]) -> Iterator[T]:
        for request in requests:
            if self._witness is not None:
                self._witness(request.request_id)
            if self._seconds_per_answer:
                time.sleep(self._seconds_per_answer)
            yield request


def _read_branches(n_cloze: int, branches: Sequence[Branch]) -> list[BranchLogprobs]:
    """A share of every token behind a text, which the cloze and the path behind it determine."""
    logprobs = []
    for text, tokens, ending in branches:
        seed = [*text[:n_cloze], *reversed(text[n_cloze:]), -1]  # -1: the root of the trie
        of_tokens = [math.log(_share(seed, token)) for token in tokens]
        logprobs.append(BranchLogprobs(of_tokens, math.log(_share(seed, ending))))
    return logprobs


def _share(*parts: object) -> float:
    return (1 + seeds.key(*parts) % 1000) / 1000


def load(start: Start) -> FakeEngine:
    """The fake engine that $FACTSWEEP_FAKE_ENGINE describes, a JSON object.

    `seconds_per_answer`, until the file `hurry` exists; `log` and `places`, files that get a line
    per prompt and per engine; `poison`, the id of a prompt that kills the engine (`*`: any);
    `hang`, of one that it never answers; `loads_s`, how long it loads, unless it made the file
    `first`; `broken`, the error (with $NAMES) that it raises instead, for the model `of` alone.
    """
    wish = json.loads(os.environ.get(WISH, "{}"))
    if "broken" in wish and wish.get("of", start.model) == start.model:
        raise RuntimeError(os.path.expandvars(wish["broken"]))
    if not _is_first(wish):
        time.sleep(wish.get("loads_s", 0))
    if "places" in wish:
        with Path(wish["places"]).open("a") as places:
            places.write(f"{json.dumps(start.place)}\n")

    def witness(prompt_id: str) -> None:
        if "log" in wish:
            with Path(wish["log"]).open("a") as log:
                log.write(f"{prompt_id}\n")
        if wish.get("poison") in (prompt_id, "*"):
            os.kill(os.getpid(), signal.SIGKILL)
        if prompt_id == wish.get("hang"):
            time.sleep(3600)
        if "seconds_per_answer" in wish and not Path(wish.get("hurry", "/nowhere")).exists():
            time.sleep(wish["seconds_per_answer"])

    return FakeEngine(witness=witness if wish else None)


def _is_first(wish: Mapping[str, Any]) -> bool:
    try:
        Path(wish["first"]).touch(exist_ok=False)
    except (KeyError, FileExistsError):
        return False
    return True


KIND = EngineKind(
    name="fake",
    version=lambda: "fake 1",
    load=load,
    abilities=frozenset({"generate", "fill", "score", "prefer"}),
    install="it is a part of factsweep",
    computes=False,  # it stands for a GPU
    hardware="fake engine",
    variables=(WISH,),
    arguments=lambda: None,
)
