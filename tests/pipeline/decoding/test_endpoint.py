"""Answers of a server as shards: a refused prompt has an error row, and none is asked twice."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.engines.endpoint import EndpointEngine
from factsweep.operators.errors import DecodingError, InputError, StoppedError
from factsweep.pipeline.config.run import Run, Samples
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding import engine as engines
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.progress_counter import CostLimit
from factsweep.pipeline.decoding.remaining_prompts import (
    Work,
    list_work,
    requests_per_prompt,
    sum_costs,
)
from factsweep.pipeline.inputs import models
from factsweep.pipeline.results import report
from factsweep.pipeline.results.run_warnings import count_served
from factsweep.pipeline.runs.forecast import forecast, lines
from factsweep.pipeline.runs.run import check_failed, log_server_differences
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.storage.store import Store
from tests.chat_server import ChatServer, Said, serving
from tests.messages import naming
from tests.pipeline.here import decode_here, make_here, opened, without

SERVED = "prompts answered by some-model"
NO_SAMPLES = Samples(0, n_answers=25, block_size=25, temperature=1.0, top_p=1.0, until=None)


class Server:
    """Answers each prompt, or as `odd` and `odd_of` say."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.odd: Callable[[str], Said | None] = lambda _: None
        self.odd_of: Callable[[dict[str, Any]], Said | None] = lambda _: None
        self.fingerprint: Callable[[], str | None] = lambda: None
        self.takes = frozenset({"n", "seed", "logprobs"})
        self.has_logprobs = False

    def __call__(self, body: dict[str, Any]) -> Said:
        chat = "messages" in body
        prompt = json.dumps(body["messages"]) if chat else str(body["prompt"])
        if (odd := self.odd(prompt) or self.odd_of(body)) is not None:
            return odd
        for name in {"seed", "logprobs"} & body.keys() - self.takes:
            return 400, {"error": {"message": f"Unsupported parameter: {name}"}}
        self.seen[f"{prompt} {body.get('seed')} {'logprobs' in body}"] += 1
        n = body.get("n", 1) if "n" in self.takes else 1
        content = (
            {"message": {"role": "assistant", "content": " Paris"}} if chat else {"text": " Paris"}
        )
        choice: dict[str, Any] = {**content, "finish_reason": "stop"}
        if self.has_logprobs:
            choice["logprobs"] = {"token_logprobs": [-0.5, -0.1], "tokens": [" Paris", "."]}
        return 200, {
            "id": "1",
            "object": "text_completion",
            "created": 0,
            "model": body["model"],
            "system_fingerprint": self.fingerprint(),
            "choices": [{"index": i, **choice} for i in range(n)],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2 * n, "total_tokens": 7 + 2 * n},
        }


@pytest.fixture
def script() -> Server:
    return Server()


@pytest.fixture
def server(script: Server) -> Iterator[ChatServer]:
    with serving(script) as started:
        yield started


def settings(small: list[str], server: ChatServer, folder: Path, *overrides: str) -> Run:
    settings_left = [
        override for override in small if not override.startswith(("model.", "decoding.engine"))
    ]
    model_overrides = ["model=endpoint", "model.id=some-model", f"model.endpoint={server.url}"]
    folders = [f"artifacts={folder}/artifacts", f"results={folder}/results"]
    sizes = ["decoding.samples.n_answers=25", "metrics.n_draws=5", "metrics.n_rounds=2"]
    return load([*settings_left, *model_overrides, *folders, *sizes, *overrides])


@pytest.fixture
def run(small: list[str], server: ChatServer, tmp_path: Path) -> Run:
    return settings(small, server, tmp_path)


@pytest.fixture
def engine(run: Run) -> Iterator[EndpointEngine]:
    loaded_engine: EndpointEngine = engines.load(run, build_plan(run).weights)
    yield loaded_engine
    loaded_engine.close()


def make_answers(plan: Plan, engine: EndpointEngine) -> None:
    """Make the answers of the server, but no metrics."""
    make_here(without(plan, "matched", "metrics"), engine)


def ready(plan: Plan) -> Work:
    """The first shard of greedy answers, after its prompts are made."""
    (branch,) = plan.branches
    for step in plan.steps:
        if step.artifact in (branch.facts, branch.prompts, branch.admitted):
            assert step.stage is not None
            step.stage.make(step.artifact)
    return list_work(plan)[0]


def of_japan(prompt: str) -> bool:
    lines = prompt.replace("\\n", "\n").splitlines()
    return "Japan" in lines[-2]


def test_endpoint_run_has_an_answer_or_a_reason_for_every_prompt(
    run: Run, engine: EndpointEngine, script: Server, server: ChatServer
) -> None:
    filtered = 400, {"error": {"message": "filtered", "code": "content_filter"}}
    script.odd = lambda prompt: filtered if of_japan(prompt) else None
    plan = build_plan(run)
    make_here(plan, engine)
    (branch,) = plan.branches
    answers, errors = branch.answers.read_all("generations"), branch.answers.read_all("errors")
    prompts = branch.prompts.read_all("prompts").filter(pl.col("same_as").is_null())
    assert {*answers["prompt_id"], *errors["prompt_id"]} == {*prompts["prompt_id"]}
    assert errors.height > 0
    assert errors.select("stage", "reason", "detail").unique().rows() == [
        ("decode", "content_filter", "Error code: 400 - filtered")
    ]
    assert {*answers["text"]} == {" Paris"}
    assert max(script.seen.values()) == 1
    assert {request["model"] for request in server.requests} == {"some-model"}
    counts = branch.answers.counts("generations").values()
    assert sum(int(request["prompt_tokens"]) for request in counts) == 7 * answers.height
    assert sum(int(request.get(SERVED, 0)) for request in counts) == answers.height
    assert not branch.answers.store.names(f"{branch.answers.folder}/chunks")
    metrics = branch.metrics.read_all("metrics")
    assert metrics.filter(metric="acc_at_1")["n_failed"].max() >= errors.height


def test_endpoint_that_ends_the_run_leaves_what_was_paid_for(
    run: Run, engine: EndpointEngine, script: Server
) -> None:
    no_credit = 402, {"error": {"message": "no credit"}}
    filtered = 400, {"error": {"message": "filtered", "code": "content_filter"}}

    def odd(prompt: str) -> Said | None:
        if len(script.seen) >= 20:
            return no_credit
        return filtered if of_japan(prompt) else None

    script.odd = odd
    plan = build_plan(run)
    with pytest.raises(InputError, match=naming("credit")):
        make_answers(plan, engine)
    assert len(script.seen) >= 20
    script.odd = lambda _: None
    make_answers(plan, engine)
    assert max(script.seen.values()) == 1
    assert all(artifact.is_complete() for artifact in plan.outputs)


def test_endpoint_asked_to_stop_waits_for_what_is_under_way(
    run: Run, engine: EndpointEngine, script: Server
) -> None:
    plan = build_plan(run)
    item = ready(plan)
    with pytest.raises(StoppedError):
        decode_here(item, engine, models.tokenizer(plan.weights), bool)
    n_seen = len(script.seen)
    n = remaining_prompts.read_prompts(item).height
    assert 0 < n_seen < n
    assert opened(item).n_left == n - n_seen
    decode_here(item, engine, models.tokenizer(plan.weights), lambda _: False)
    assert len(script.seen) == n
    assert max(script.seen.values()) == 1


def test_endpoint_spends_no_more_than_it_may_and_says_to_the_token_what_it_spent(
    run: Run, engine: EndpointEngine, script: Server
) -> None:
    # A dollar for a token of a prompt, ten for one of an answer: an answer costs 27.
    run = replace(run, model=replace(run.model, price_in=1e6, price_out=1e7))
    plan = build_plan(run)
    item = ready(plan)
    n, longest = (
        remaining_prompts.read_prompts(item).height,
        remaining_prompts.read_prompts(item)["text"].str.len_bytes().max(),
    )
    assert isinstance(longest, int)
    purse = CostLimit(limit=longest + 64 + 100 + 8 * 27.0)
    with pytest.raises(StoppedError, match=naming("max_cost")):
        decode_here(item, engine, models.tokenizer(plan.weights), lambda _: False, purse)
    n_seen = len(script.seen)
    assert 0 < n_seen < n
    assert purse.spent() == sum_costs(plan) == 27 * n_seen
    assert purse.spent() <= purse.limit
    assert purse.reserved == 0
    larger = CostLimit(limit=1e6, spent=sum_costs(plan))
    decode_here(item, engine, models.tokenizer(plan.weights), lambda _: False, larger)
    assert larger.spent() == sum_costs(plan) == 27 * n
    assert max(script.seen.values()) == 1


def test_plan_of_an_endpoint_prices_what_answers_may_have_at_most_with_their_thoughts(
    run: Run,
) -> None:
    prompts = set()
    for thinking, most in {None: 0, True: 500}.items():
        model = replace(run.model, price_in=1.0, price_out=2.0, thinking=thinking)
        decoding = replace(run.decoding, thinking_tokens=500)
        plan, (figures,) = forecast(replace(run, model=model, decoding=decoding))
        n_left = sum(figures.n_left[table] for table in figures.n_asked)
        n = n_left * (run.decoding.max_tokens + most)
        (line,) = (
            text_line for text_line in lines(plan, [figures]) if text_line.startswith("cost")
        )
        assert re.search(naming(f"{n:,} of answers", f"{2e-6 * n:,.4f}"), line)
        prompts.add(re.search(r"([\d,]+) tokens of prompts", line)[1])
    assert len(prompts) == 1


def test_endpoint_that_changes_while_it_answers_is_named(
    run: Run, engine: EndpointEngine, script: Server, caplog: pytest.LogCaptureFixture
) -> None:
    script.fingerprint = lambda: "fp_1" if len(script.seen) < 30 else "fp_2"
    plan = build_plan(run)
    make_answers(plan, engine)
    assert {*count_served(plan.outputs)} == {"some-model fp_1", "some-model fp_2"}
    log_server_differences(plan)
    assert re.search(naming("some-model fp_1 (", "some-model fp_2 (", "samples"), caplog.text)


def test_endpoint_without_n_is_asked_for_each_sample_which_plan_and_run_count(
    run: Run, engine: EndpointEngine, script: Server, caplog: pytest.LogCaptureFixture
) -> None:
    run = replace(run, model=replace(run.model, price_in=1.0, price_out=2.0))
    script.takes = frozenset({"seed", "logprobs"})
    plan, figures = forecast(run)
    n_asked, n_blocks = figures[0].n_asked, len(plan.branches[0].extra_outputs)
    n_few = n_asked["generations"] + n_asked["canary"] + n_blocks * n_asked["samples"]
    n_many = n_few + 24 * n_blocks * n_asked["samples"]
    text = "\n".join(lines(plan, figures))
    assert f"requests        {n_few:,} with" in text
    assert f"{n_many:,} with" in text
    make_answers(plan, engine)
    assert requests_per_prompt(plan) == 25
    assert sum_costs(plan) == pytest.approx((7 * n_many + 2 * 2 * n_many) / 1e6)
    log_server_differences(plan)
    n_sampled = n_blocks * n_asked["samples"]
    assert f"those of {n_sampled} prompts took {25 * n_sampled} requests" in caplog.text
    samples = replace(run.decoding.samples, n_answers=50)
    plan, figures = forecast(replace(run, decoding=replace(run.decoding, samples=samples)))
    (line,) = (text_line for text_line in lines(plan, figures) if text_line.startswith("requests"))
    assert line.startswith(f"requests        {25 * n_asked['samples']:,} with")


def test_endpoint_questions_about_answers_are_counted_asked_and_paid_for(
    run: Run, engine: EndpointEngine, script: Server
) -> None:
    confidence = replace(run.decoding.confidence, ask=("verbalised",))
    run = replace(run, model=replace(run.model, price_in=1.0, price_out=2.0))
    run = replace(run, decoding=replace(run.decoding, confidence=confidence))
    plan, figures = forecast(run)
    (branch,), n_asked = plan.branches, figures[0].n_asked
    n_blocks = len(branch.extra_outputs) - 1
    n = n_asked["generations"] + n_asked["canary"] + n_blocks * n_asked["samples"]
    n += 2 * n_asked["verbalised"]  # the answer once more, and the question about it
    assert f"requests        {n:,} with" in "\n".join(lines(plan, figures))
    make_answers(plan, engine)
    asked = branch.extra_outputs[-1]
    rows = asked.read_all("verbalised")
    assert rows.height == n_asked["verbalised"] > 0
    assert rows["text"].is_not_null().all()
    assert rows["reply"].is_not_null().all()
    counts = asked.counts("verbalised").values()
    assert sum(float(shard["prompt_tokens"]) for shard in counts) == 2 * 7 * rows.height
    assert any(confidence.verbalised in text for text in script.seen)


def test_endpoint_purse_has_room_for_the_prompt_of_each_sample(
    run: Run, engine: EndpointEngine, script: Server
) -> None:
    script.takes = frozenset({"seed", "logprobs"})
    run = replace(run, model=replace(run.model, price_in=1e6, price_out=0.0))
    plan = build_plan(run)
    ready(plan)
    item = next(work_item for work_item in list_work(plan) if work_item.table == "samples")
    longest = remaining_prompts.read_prompts(item)["text"].str.len_bytes().max()
    assert isinstance(longest, int)
    purse = CostLimit(limit=25 * (longest + 64.0))
    with pytest.raises(StoppedError, match=naming("max_cost")):
        decode_here(item, engine, models.tokenizer(plan.weights), lambda _: False, purse)
    assert 0 < purse.spent() == sum_costs(plan) <= purse.limit


def test_endpoint_samples_without_an_answer_are_counted_and_explained(
    run: Run, engine: EndpointEngine, script: Server, caplog: pytest.LogCaptureFixture
) -> None:
    nothing = {"choices": [{"text": {"city": "Oslo"}}], "model": "some-model"}
    script.has_logprobs = True
    script.odd_of = lambda body: (200, nothing) if "n" in body else None
    plan = build_plan(run)
    make_here(plan, engine)
    report.write(plan, {"total": 1.0})
    n = sum(sum(artifact.rows("errors").values()) for artifact in plan.branches[0].extra_outputs)
    assert f"{n} blocks of samples have no answer: unknown_content {n}." in caplog.text
    with pytest.raises(DecodingError, match=naming("max_failed_share", "unknown_content")) as error:
        check_failed(plan)
    assert f"{n} of {n} blocks of samples have no answer" in str(error.value)


def test_endpoint_thought_beside_an_answer_is_kept_though_nobody_asked_for_one(
    small: list[str], server: ChatServer, script: Server, tmp_path: Path
) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Rome?"}]}
    content = [thought, {"type": "text", "text": "Paris"}]
    reply = {"choices": [{"message": {"content": content}}], "model": "some-model"}
    script.odd = lambda prompt: (200, reply) if of_japan(prompt) else None
    chat = ("model.chat_template=true", "decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
    run = settings(small, server, tmp_path, *chat)
    plan = build_plan(run)
    loaded: EndpointEngine = engines.load(run, plan.weights)
    make_answers(plan, loaded)
    loaded.close()
    answers = plan.branches[0].answers
    thoughts = answers.read_all("thoughts").drop_nulls("texts")
    assert {*thoughts["texts"].explode()} == {"Rome?"}
    assert {*answers.read_all("generations")["text"]} == {" Paris", "Paris"}


def test_endpoint_that_takes_no_logprobs_and_seeds_is_said_in_the_run_and_on_its_page(
    run: Run, engine: EndpointEngine, script: Server, caplog: pytest.LogCaptureFixture
) -> None:
    script.takes = frozenset({"n"})
    plan = build_plan(run)
    make_here(plan, engine)
    log_server_differences(plan)
    report.write(plan, {"total": 1.0})
    page = Store(run.folder).get("index.html").decode()
    for place_text in (caplog.text, page):
        assert re.search(naming("no log-probabilities for 13 prompts", "takes no seed"), place_text)
    assert "may ignore seeds" not in page


def test_endpoint_that_does_as_it_is_asked_has_nothing_said_of_it(
    run: Run, engine: EndpointEngine, script: Server, caplog: pytest.LogCaptureFixture
) -> None:
    script.has_logprobs = True
    plan = build_plan(replace(run, decoding=replace(run.decoding, samples=NO_SAMPLES)))
    make_answers(plan, engine)
    log_server_differences(plan)
    assert not caplog.text


def test_endpoint_turns_are_those_that_an_engine_here_reads(
    small: list[str], server: ChatServer, tmp_path: Path, tokenizer: Any
) -> None:
    greedy = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
    turns = ("model.chat_template=true", "prompt.as=turns")
    run = settings(small, server, tmp_path, *turns, *greedy)
    plan = build_plan(run)
    loaded_engine: EndpointEngine = engines.load(run, plan.weights)
    make_answers(plan, loaded_engine)
    loaded_engine.close()
    (branch,) = plan.branches
    prompts = (
        with_text(branch.prompts, "prompts", shard) for shard in branch.prompts.shards("prompts")
    )
    texts = [text for rows in prompts for text in rows.filter(pl.col("same_as").is_null())["text"]]
    _, question = next(branch.list_questions())
    local_ids = question.task.token_ids(tokenizer, texts)
    sent = [
        tokenizer.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_dict=False
        )
        for request in server.requests
    ]
    assert sorted(sent) == sorted(local_ids)


def test_endpoint_pool_is_planned_run_and_shown_as_one_model(
    small: list[str], server: ChatServer, script: Server, tmp_path: Path
) -> None:
    with serving(Server()) as second:
        pool = (f"model.endpoint.urls=[{server.url},{second.url}]", "model.client.max_concurrent=4")
        greedy = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
        run = settings(small, server, tmp_path, *pool, *greedy)
        plan, figures = forecast(run)
        names = f"some-model at 2 servers ({server.url}, {second.url})"
        assert any(names in line for line in lines(plan, figures))
        loaded: EndpointEngine = engines.load(run, plan.weights)
        make_here(plan, loaded)
        loaded.close()
        report.write(plan, {"total": 1.0})
    n = sum(plan.branches[0].answers.rows("generations").values())
    assert len(server.requests) + len(second.requests) == n
    assert min(len(server.requests), len(second.requests)) > 0
    store = Store(run.folder)
    assert names in store.get("index.html").decode()
    assert json.loads(store.get("run.json"))["run"]["model"]["endpoint"] == {
        "urls": [server.url, second.url]
    }
