"""Chats: the same facts as turns, and templates in whose prompts all is said, on every day."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts import chat, few_shot
from factsweep.operators.prompts.chat import turns
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.few_shot import FewShot
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.prompts.tokens import encode, visible, warnings
from tests.messages import naming
from tests.operators.prompts.test_few_shot import facts
from tests.operators.prompts.test_tokens import tiny

TURNS = "{% for turn in messages %}{{ turn.role }}: {{ turn.content | trim }}\n{% endfor %}"
# As Llama 3.2 writes its system turn.
LLAMA = (
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}"
    '{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}'
    '{%- set date_string = "26 Jul 2024" %}{%- endif %}{%- endif %}'
    '{{- "Today Date: " + date_string + "\n" }}' + TURNS
)
CHAT = (
    '{"role":"system","content":"Answer in one word."}\n'
    '{"role":"user","content":"Where is Paris?"}\n'
)


@pytest.fixture
def templated(tokenizer: Any) -> Any:
    """SmolLM2's tokenizer, whose template a test may change."""
    template = tokenizer.chat_template
    yield tokenizer
    tokenizer.chat_template = template


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("Who are you?", ["the user", "Where is Paris?", "model.chat_template=FILE"]),
        (
            "{% for turn in messages %}{{ turn.text }}{% endfor %}{{ question }}",
            ["the user", "unknown variable question", "model.template_kwargs"],
        ),
        ("{{ messages[0].content[:9] }}\nassistant:", ["the user", "Where is Paris?"]),
        ("{{ messages[0].content }}<|im_end|>\n", ["<|im_end|>", "no reply"]),
        ("{{ messages[0].content }} {{ now() }}", ["'now' is undefined", "{now: VALUE}"]),
        (
            "{% if not persona %}{{ raise_exception('Set persona first') }}{% endif %}" + TURNS,
            ["Set persona first", "model.template_kwargs={persona: VALUE}"],
        ),
        ("{{ messages[0].content + none }}", ["TypeError", "model.chat_template=false"]),
        ("{{ 1 / 0 }}", ["ZeroDivisionError", "model.chat_template=FILE"]),
        ({"rag": TURNS, "tool_use": TURNS}, ["rag and tool_use", "{chat_template: rag}"]),
    ],
)
def test_encode_template_that_drops_or_ends_the_prompt_is_refused(
    templated: Any, template: Any, words: list[str]
) -> None:
    templated.chat_template = template
    with pytest.raises(InputError, match=naming(*words)):
        encode(templated, ["Where is Paris?"], chat_template=True)


def test_encode_template_that_writes_all_letters_small_is_not_refused(templated: Any) -> None:
    templated.chat_template = "{{ messages[0].content | lower }}"
    (ids,) = encode(templated, ["Where is Paris?"], chat_template=True)
    assert visible(templated, ids) == "where is paris?"


def test_encode_template_without_the_system_turn_is_refused(templated: Any) -> None:
    templated.chat_template = "{% set messages = messages[1:] %}" + TURNS
    with pytest.raises(InputError, match=naming("the system", "prompt.system=''")):
        encode(templated, [CHAT], chat_template=True, as_turns=True)


def test_encode_templates_by_name_are_chosen_by_it(templated: Any) -> None:
    templated.chat_template = {"default": TURNS, "rag": f"RAG {TURNS}"}
    for template_kwargs, start in (({}, "user:"), ({"chat_template": "rag"}, "RAG user:")):
        (ids,) = encode(templated, ["Hi?"], chat_template=True, template_kwargs=template_kwargs)
        assert visible(templated, ids).startswith(start)
    with pytest.raises(InputError, match=naming("default and rag")):
        encode(templated, ["Hi?"], chat_template=True, template_kwargs={"chat_template": "tools"})


def test_encode_template_that_prints_a_date_prints_the_same_on_every_day(templated: Any) -> None:
    pinned = {"date_string": "1 Jan 2025"}
    for template, template_kwargs, day in (
        (LLAMA, {}, "26 Jul 2024"),
        (LLAMA, pinned, "1 Jan 2025"),
        ("{{ strftime_now('%Y-%m-%d') }} " + TURNS, {}, "2024-07-26"),
    ):
        templated.chat_template = template
        (ids,) = encode(templated, ["Hi?"], chat_template=True, template_kwargs=template_kwargs)
        assert day in visible(templated, ids)
        sentences = warnings(templated, "Hi?", chat_template=True, template_kwargs=template_kwargs)
        assert len(sentences) == (template_kwargs != pinned)
        assert all(chat.TODAY.strftime("%d %b %Y") in sentence for sentence in sentences)


def test_warnings_variables_that_are_printed_and_not_given_are_named(templated: Any) -> None:
    guarded = "{% if tools %}{{ tools }}{% endif %}{{ persona | default('') }}{{ bos_token }}"
    templated.chat_template = guarded + TURNS
    assert warnings(templated, "Hi?", chat_template=True) == []
    templated.chat_template = "{{ persona }} {{ date_string }}" + TURNS
    (warning,) = warnings(templated, "Hi?", chat_template=True)
    assert "date_string and persona" in warning
    assert "model.template_kwargs={date_string" in warning
    template_kwargs = {"persona": "a pirate", "date_string": "26 Jul 2024"}
    assert warnings(templated, "Hi?", chat_template=True, template_kwargs=template_kwargs) == []


MASK = "Predict the [MASK] in each sentence in one word."
Turns = list[dict[str, str]]


def as_turns(facts: Facts, **options: Any) -> list[Turns]:
    """The chats of a setting."""
    setting = Setting("template", 2, as_="turns", **options)
    return [turns(t) for e in expand(facts, setting, seed=0) for t in e.of("prompts")["text"]]


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
        first, *contents = [turn["content"] for turn in chats[name]]
        lines = [
            f"Q: {question}\nA: {answer}\n"
            for question, answer in zip(contents[:-1:2], contents[1::2], strict=True)
        ]
        assert text == "".join([f"{first}\n", *lines, f"Q: {contents[-1]}\nA:"])


def test_turns_begin_with_the_system_and_end_with_the_user(mini: Facts) -> None:
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    for system, content in ((None, MASK), ('Say "yes".\nAlways.', f'Say "yes".\nAlways.\n{MASK}')):
        for chat_turns in as_turns(mini, system=system):
            assert [turn["role"] for turn in chat_turns] == roles
            assert chat_turns[0]["content"] == content


@pytest.mark.parametrize("shots", [0, 1])
def test_turns_without_a_system_the_first_of_the_user_instructs(mini: Facts, shots: int) -> None:
    context = "template" if shots else "zero-shot"
    setting = Setting(context, shots, as_="turns", system="")  # type: ignore[arg-type]
    text = next(expand(mini, setting, seed=0)).of("prompts")["text"][0]
    users = [turn["content"] for turn in turns(text) if turn["role"] == "user"]
    assert "system" not in text
    assert [content.startswith(f"{MASK}\n") for content in users] == [True, False][: shots + 1]


def test_turns_of_kamel_are_its_examples() -> None:
    plain, chat = (
        pl.concat(e.of("prompts") for e in few_shot.expand(facts(), setting, seed=0))
        for setting in (FewShot(2), FewShot(2, as_="turns", system="Be brief."))
    )
    assert plain["prompt_id"].equals(chat["prompt_id"])
    for text, chat_turns in zip(plain["text"], map(turns, chat["text"]), strict=True):
        assert chat_turns[0] == {"role": "system", "content": "Be brief."}
        (q1, a1, q2, a2, question) = (turn["content"] for turn in chat_turns[1:])
        assert text == f"{q1} {a1}\n{q2} {a2}\n{question}"


def test_turns_are_read_as_the_tokenizers_own_template_writes_them(
    tokenizer: Any, mini: Facts
) -> None:
    text = next(expand(mini, Setting("template", 2, as_="turns"), seed=0)).of("prompts")["text"][0]
    expected = tokenizer.apply_chat_template(
        turns(text), add_generation_prompt=True, return_dict=False
    )
    assert encode(tokenizer, [text], chat_template=True, as_turns=True) == [expected]


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
