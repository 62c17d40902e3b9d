"""A model as a callable, loaded in this process when it is first asked: prompt → text."""

from functools import cache
from itertools import count
from typing import Any

from factsweep.operators.construction.paraphrase import Ask
from factsweep.operators.engines.protocol import Refused, Request, Sampling
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.tokens import encode
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.execution import engine as engines
from factsweep.pipeline.inputs import models

_SAMPLING = Sampling(max_tokens=512, stop=(), temperature=0.7)


def prompted(name: str) -> Ask:
    """The model of that name in conf/model/, id of the hub or folder, asked as a chat if it is one.

    The same prompt gets another answer each time, and the same ones in the same order.
    """
    run = load([f"model={name}", "decoding=greedy"])
    seeds = count()

    @cache
    def loaded() -> tuple[Any, Any]:
        weights = models.resolve(models.settled(run.model, run.cluster.device))
        return engines.load(run, weights), models.tokenizer(weights)

    def ask(prompt: str) -> str:
        engine, tokenizer = loaded()
        is_chat = bool(getattr(tokenizer, "chat_template", None))
        (ids,) = encode(tokenizer, [prompt], chat_template=is_chat)
        (answer,) = engine.answers([Request("asked", ids, _SAMPLING, next(seeds), prompt)])
        if isinstance(answer, Refused):
            raise InputError(f"model {name} does not answer ({answer.reason}); choose another.")
        return str(answer.completions[0].text)

    return ask
