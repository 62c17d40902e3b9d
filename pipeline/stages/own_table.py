"""What a run takes from a table of one's own before it starts: types, cells, room for answers."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from factsweep.operators.datasets import object_types, plain_tables
from factsweep.operators.errors import InputError
from factsweep.operators.methods.ability import GENERATE
from factsweep.operators.wording import listed
from factsweep.pipeline.config.benchmark import Benchmark
from factsweep.pipeline.config.decoding import Decoding
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.files import scan
from factsweep.pipeline.stages import facts as facts_stage

_FEWEST_TOKENS = 10  # of an answer
_MORE_TOKENS = 6  # beside those of a longer answer: models write more than the answer


def with_room(run: Run) -> Decoding:
    """The decoding, with room for the longest right answer where max_tokens is 0."""
    if run.decoding.max_tokens or run.method.ask.ability != GENERATE:
        return run.decoding
    _, answer = _longest_answer(run.benchmark)
    n_tokens = object_types.n_tokens(answer)
    fits = n_tokens <= _FEWEST_TOKENS
    return replace(run.decoding, max_tokens=_FEWEST_TOKENS if fits else n_tokens + _MORE_TOKENS)


def demonstrated_in(benchmark: Benchmark) -> str | None:
    """The language in which demonstrations are written alike; null: they are as they stand."""
    if benchmark.types == "names":
        return None
    _, examples = object_types.written_alike(facts_stage.read(benchmark), benchmark.language)
    return benchmark.language if examples else None


def sentences(run: Run) -> Iterator[str]:
    """What is read of the table otherwise than as names, and what may not be meant so."""
    benchmark = run.benchmark
    if benchmark.types == "names":
        return
    facts = facts_stage.read(benchmark)
    try:
        yield from object_types.sentences(facts, benchmark.language)
    except InputError as error:
        raise InputError(f"{benchmark.path or benchmark.data}: {error}") from error
    if any(getattr(setting, "shots", 0) for setting in run.settings):
        _, examples = object_types.written_alike(facts, benchmark.language)
        if examples:
            how = listed(f"{relation} as {text!r}" for relation, text in examples.items())
            yield f"demonstrations write dates and numbers in one way: {how}."
    rows = scan(catalog.files(catalog.of_benchmark(benchmark), benchmark.path))
    yield from object_types.unread_types(rows)
    yield from plain_tables.several(rows, catalog.SEPARATOR_OPTION, benchmark.separator)


def cut_answers(run: Run, load_tokenizer: Callable[[], Any]) -> Iterator[str]:
    """That the longest right answer of the table does not fit max_tokens, if so."""
    if run.benchmark.types == "names" or run.method.ask.ability != GENERATE:
        return
    relation_id, answer = _longest_answer(run.benchmark)
    n_tokens, most = object_types.n_tokens(answer), run.decoding.max_tokens
    if answer.isascii() and n_tokens <= most:
        return  # the estimate is high, and a tokenizer takes long to load
    if run.model.endpoint is None or run.model.tokenizer is not None:
        n_tokens = len(load_tokenizer().encode(f" {answer}", add_special_tokens=False))
    if n_tokens > most:
        yield (
            f"the right answer {answer!r} of {relation_id} has {n_tokens} tokens, and "
            f"decoding.max_tokens={most} cuts it; give benchmark.max_tokens={n_tokens + 2} or more."
        )


def _longest_answer(benchmark: Benchmark) -> tuple[str, str]:
    facts = facts_stage.read(benchmark)
    return object_types.longest_answer(facts, benchmark.language, benchmark.types)
