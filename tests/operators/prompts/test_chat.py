"""Chat templates: all that is said stands in the prompt, on every day the same."""

from typing import Any

import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.prompts import chat
from factsweep.operators.prompts.tokens import encode, visible, warnings
from tests.messages import naming

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
        ("{{ messages[0].content }} {{ now() }}", ["'now' is undefined", "model.template_kwargs"]),
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
