"""Chats in full: a template, a beginning of the reply and a system prompt of one's own."""

from dataclasses import asdict
from pathlib import Path

import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.prompts.tokens import visible
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import models
from factsweep.pipeline.stages.plan import planned
from tests.messages import naming

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def test_template_and_prefill_are_read_by_the_model_and_stand_in_the_recipe(tmp_path: Path) -> None:
    own = tmp_path / "own.jinja"
    own.write_text(TEMPLATE)
    (tmp_path / "system.txt").write_text("You are a pirate.")
    where = f"artifacts={tmp_path}/a"
    turns = ["prompt=zero-shot", "prompt.as=turns", f"prompt.system=@{tmp_path}/system.txt"]
    chat = [f"model.chat_template={own}", "model.prefill=Arr:", *turns, where]
    run = load(chat)
    assert run.model.chat_template is True
    assert run.settings[0].system == "You are a pirate."  # type: ignore[attr-defined]
    plan = planned(run)
    (branch,) = plan.branches
    task = next(question for _, question in branch.asked()).task
    text = '{"role":"system","content":"S"}\n{"role":"user","content":"U"}\n'
    tokenizer = models.tokenizer(plan.weights)
    (ids,) = task.token_ids(tokenizer, [text])
    assert visible(tokenizer, ids) == "<system>S<user>U<assistant>Arr:"
    own.write_text(TEMPLATE + "!")
    others = [planned(load(chat)), planned(load([*chat, "model.prefill=Ahoy:"]))]
    for stage in ("admitted", "generations"):
        names = {
            next(a.folder for a in each.branches[0].artifacts() if a.stage == stage)
            for each in (plan, *others)
        }
        assert len(names) == 3, stage
    plain = asdict(load([where]).model)
    assert (plain["chat_template_text"], plain["prefill"]) == (None, None)


def test_what_is_no_chat_is_refused(tmp_path: Path) -> None:
    cases = {
        ("model.prefill=A:",): ("model.prefill", "model.chat_template=true"),
        ("model.chat_template=true", "model.prefill=A:", "model.thinking=on"): ("thinking",),
        (f"model.chat_template={tmp_path}/none.jinja",): ("none.jinja",),
        ("prompt.as=turns", f"prompt.system=@{tmp_path}/none.txt"): ("none.txt", "prompt.system"),
    }
    for given, words in cases.items():
        with pytest.raises(InputError, match=naming(*words)):
            load(list(given))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(InputError, match=naming("empty.txt")):
        load(["prompt.as=turns", f"prompt.system=@{tmp_path}/empty.txt"])
