"""Whether greedy answers are those of the same model on one GPU, and on a CPU in float32."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from factsweep.pipeline.config.settings import Run
from factsweep.pipeline.costs import calibration
from factsweep.pipeline.doctor.finding import Finding
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.asking.generate import Generate

_GROUP = "load"
_PROMPTS = 20  # which a CPU answers in float32 within minutes
_SMALL = 2.0  # billions of parameters
_CORES = 8
_MOST_OTHER = 0.25  # of the answers: more is not the rounding of another type alone

Texts = Mapping[str, str]  # greedy answers by prompt_id


def checks(run: Run, texts: Texts, answered: Callable[[Run], Texts]) -> Iterator[Finding]:
    """Compare greedy answers with those of one GPU, where weights fit it, and those of a CPU.

    `answered` loads the engine of another configuration where the sweep would, and asks it the
    same prompts.
    """
    model = run.model
    if model.tensor_parallel > 1:
        told = "the weights do not fit one GPU: not compared"
        one = replace(run, model=replace(model, tensor_parallel=1))
        found = answered(one)
        yield _compared("one GPU", texts, found) if found else Finding.of(_GROUP, "one GPU", told)
    is_plain = model.architecture == "decoder" and not (model.thinking or model.adapter)
    if texts and is_plain and 0 < (model.billions_of_parameters or 0) <= _SMALL:
        yield _compared("float32 on CPU", texts, _on_cpu(run))


def _compared(check: str, texts: Texts, others: Texts) -> Finding:
    both = texts.keys() & others.keys()
    equal = sum(texts[each] == others[each] for each in both)
    told = f"{equal} of {len(both)} greedy answers are equal"
    fix = "so many others are not rounding alone; attach doctor --load --report to an issue"
    return Finding.of(
        _GROUP, check, told, warns=fix if equal < (1 - _MOST_OTHER) * len(both) else ""
    )


def _on_cpu(run: Run) -> Texts:
    """The answers by transformers in float32, on the cores of a node and none of its GPUs."""
    import ray

    cores = min(_CORES, max(int(node["Resources"].get("CPU", 1)) for node in ray.nodes()))
    found: Texts = ray.get(ray.remote(num_cpus=cores, max_retries=0)(in_float32).remote(run))
    return found


def in_float32(run: Run) -> Texts:
    """Greedy answers to the first prompts of a run, token by token, by transformers."""
    with calibration.prepared(run) as plan:
        job = next(calibration.jobs(plan))
        rows = pl.concat(job.parts).head(_PROMPTS)
        if not isinstance(job.task, Generate):
            return {}
        model, tokenizer = _loaded(plan.weights), models.tokenizer(plan.weights)
    asked = job.task.token_ids(tokenizer, rows["text"].to_list())
    told = {"max_new_tokens": run.decoding.max_tokens, "do_sample": False}
    return {
        prompt_id: _until(run.decoding.stop, _continued(model, tokenizer, ids, told))
        for prompt_id, ids in zip(rows["prompt_id"], asked, strict=True)
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
