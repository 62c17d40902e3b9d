"""Chats: the same facts as turns, put to an engine here and to a server with the same words."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts import few_shot
from factsweep.operators.prompts.chat import turns
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.few_shot import FewShot
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.prompts.tokens import encode
from tests.messages import naming
from tests.operators.prompts.test_few_shot import facts
from tests.operators.prompts.test_tokens import tiny

MASK = "Predict the [MASK] in each sentence in one word."
Turns = list[dict[str, str]]


def as_turns(facts: Facts, **how: Any) -> list[Turns]:
    """The chats of a setting."""
    asked = Setting("template", 2, as_="turns", **how)
    return [turns(t) for e in expand(facts, asked, seed=0) for t in e.of("prompts")["text"]]


def test_turns_say_what_the_lines_of_the_text_say(mini: Facts) -> None:
    texts = [
        (i, t)
        for e in expand(mini, Setting("template", 2), seed=0)
        for i, t in e.of("prompts").select("prompt_id", "text").iter_rows()
    ]
    chats = {
        i: turns(t)
        for e in expand(mini, Setting("template", 2, as_="turns"), seed=0)
        for i, t in e.of("prompts").select("prompt_id", "text").iter_rows()
    }
    assert chats.keys() == {name for name, _ in texts}
    for name, text in texts:
        first, *said = [turn["content"] for turn in chats[name]]
        lines = [
            f"Q: {asked}\nA: {answer}\n"
            for asked, answer in zip(said[:-1:2], said[1::2], strict=True)
        ]
        assert text == "".join([f"{first}\n", *lines, f"Q: {said[-1]}\nA:"])


def test_turns_begin_with_the_system_and_end_with_the_user(mini: Facts) -> None:
    for chat in as_turns(mini):
        assert [each["role"] for each in chat] == [
            *("system", "user", "assistant", "user", "assistant", "user")
        ]
        assert chat[0]["content"] == MASK


def test_turns_system_prompt_stands_before_the_instruction(mini: Facts) -> None:
    (chat, *_) = as_turns(mini, system='Say "yes".\nAlways.')
    assert chat[0] == {"role": "system", "content": f'Say "yes".\nAlways.\n{MASK}'}


@pytest.mark.parametrize("shots", [0, 1])
def test_turns_without_a_system_the_first_of_the_user_instructs(mini: Facts, shots: int) -> None:
    context = "template" if shots else "zero-shot"
    asked = Setting(context, shots, as_="turns", system="")  # type: ignore[arg-type]
    text = next(expand(mini, asked, seed=0)).of("prompts")["text"][0]
    users = [each["content"] for each in turns(text) if each["role"] == "user"]
    assert "system" not in text
    assert [said.startswith(f"{MASK}\n") for said in users] == [True, False][: shots + 1]


def test_turns_of_kamel_are_its_examples() -> None:
    plain, chat = (
        pl.concat(e.of("prompts") for e in few_shot.expand(facts(), asked, seed=0))
        for asked in (FewShot(2), FewShot(2, as_="turns", system="Be brief."))
    )
    assert plain["prompt_id"].equals(chat["prompt_id"])
    for text, said in zip(plain["text"], map(turns, chat["text"]), strict=True):
        assert said[0] == {"role": "system", "content": "Be brief."}
        (q1, a1, q2, a2, asked) = (each["content"] for each in said[1:])
        assert text == f"{q1} {a1}\n{q2} {a2}\n{asked}"


def test_turns_are_read_as_the_tokenizers_own_template_writes_them(
    tokenizer: Any, mini: Facts
) -> None:
    text = next(expand(mini, Setting("template", 2, as_="turns"), seed=0)).of("prompts")["text"][0]
    own = tokenizer.apply_chat_template(turns(text), add_generation_prompt=True, return_dict=False)
    assert encode(tokenizer, [text], chat_template=True, as_turns=True) == [own]


def test_turns_that_a_template_does_not_take_are_refused_in_one_sentence() -> None:
    chat = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(InputError, match=naming("prompt.system=")):
        encode(
            tiny("<s>", chat),
            ['{"role":"system","content":"a"}'],
            chat_template=True,
            as_turns=True,
        )


def test_turns_a_system_prompt_needs_them() -> None:
    with pytest.raises(InputError, match=naming("prompt.system", "prompt.as=", "give")):
        Setting("zero-shot", 0, system="Be brief.")
