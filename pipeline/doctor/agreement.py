"""Whether greedy answers are those of the same model on one GPU, and on a CPU in float32."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.doctor.finding import Finding
from factsweep.pipeline.inputs import models

_PROMPTS = 20  # which a CPU answers in float32 within minutes
_SMALL = 2.0  # billions of parameters
_CORES = 8
_MOST_OTHER = 0.25  # of the answers: more is not the rounding of another type alone

Asked = Mapping[str, list[int]]  # the token ids of prompts by prompt_id
Texts = Mapping[str, str]  # their greedy answers


def checks(
    run: Run, asked: Asked, texts: Texts, answered: Callable[[Run], Texts]
) -> Iterator[Finding]:
    """Compare greedy answers with those of one GPU, where weights fit it, and those of a CPU.

    `answered` loads the engine of another configuration where the sweep would, and asks it the
    same prompts.
    """
    model = run.model
    if model.tensor_parallel > 1:
        told = "the weights do not fit one GPU: not compared"
        one = replace(run, model=replace(model, tensor_parallel=1))
        found = answered(one)
        yield _compared("one GPU", texts, found) if found else Finding.of("one GPU", told)
    is_plain = model.architecture == "decoder" and not (model.thinking or model.adapter)
    if texts and is_plain and 0 < (model.billions_of_parameters or 0) <= _SMALL:
        yield _compared("float32 on CPU", texts, _on_cpu(run, asked))


def _compared(check: str, texts: Texts, others: Texts) -> Finding:
    both = texts.keys() & others.keys()
    equal = sum(texts[each] == others[each] for each in both)
    told = f"{equal} of {len(both)} greedy answers are equal"
    fix = "so many others are not rounding alone; attach doctor --load --report to an issue"
    few = equal < (1 - _MOST_OTHER) * len(both)
    return Finding.of(check, told, warns=fix if few else "")


def _on_cpu(run: Run, asked: Asked) -> Texts:
    """The answers by transformers in float32, on the cores of a node and none of its GPUs."""
    import ray

    cores = min(_CORES, max(int(node["Resources"].get("CPU", 1)) for node in ray.nodes()))
    answer = ray.remote(num_cpus=cores, max_retries=0)(in_float32)
    found: Texts = ray.get(answer.remote(run, dict(islice(asked.items(), _PROMPTS))))
    return found


def in_float32(run: Run, asked: Asked) -> Texts:
    """Greedy answers to prompts, token by token, by transformers."""
    weights = models.resolve(run.model)
    model, tokenizer = _loaded(weights), models.tokenizer(weights)
    told = {"max_new_tokens": run.decoding.max_tokens, "do_sample": False}
    return {
        prompt_id: _until(run.decoding.stop, _continued(model, tokenizer, ids, told))
        for prompt_id, ids in asked.items()
    }


def _loaded(weights: models.Weights) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        models.location(weights),
        revision=weights.revision if weights.model.source == "hub" else None,
        dtype=torch.float32,
        trust_remote_code=weights.model.trust_remote_code,
    )


def _continued(model: Any, tokenizer: Any, ids: list[int], told: Mapping[str, Any]) -> str:
    import torch

    asked = torch.tensor([ids])
    with torch.inference_mode():
        found = model.generate(asked, attention_mask=torch.ones_like(asked), **told)
    return str(tokenizer.decode(found[0][len(ids) :], skip_special_tokens=True))


def _until(stops: tuple[str, ...], text: str) -> str:
    """A text up to the first of the texts that end an answer."""
    ends = [text.find(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text
