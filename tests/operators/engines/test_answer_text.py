"""answer_text: prompts, thoughts and what follows a stop are no part of an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.engines.answer_text import cut_at_stops, split_thought, strip_prompt

PROMPT = "Predict the [MASK] in one word.\nQ: Rome lies in [MASK].\nA:"
QUESTION = "Q: Rome lies in [MASK]."

REPEATED = {
    "as it was asked": PROMPT + " Italy.",
    "line ends of Windows": PROMPT.replace("\n", "\r\n") + " Italy.",
    "line ends of old Macs": PROMPT.replace("\n", "\r") + " Italy.",
    "without line ends": " ".join(PROMPT.split()) + " Italy.",
    "blanks before it": "\n\n  " + PROMPT + " Italy.",
    "BOS before it": "<s>" + PROMPT + " Italy.",
    "BOM before it": "\ufeff" + PROMPT + " Italy.",
    "tokenizer's blanks": PROMPT.replace(".", " .") + " Italy.",
    "ChatML": f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{PROMPT}<|im_end|>\n"
    "<|im_start|>assistant\nItaly.",
    "ChatML without marks": f"system\nBe brief.\nuser\n{PROMPT}\nassistant\nItaly.",
    "Llama 3": f"<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{PROMPT}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nItaly.",
    "Mistral": f"<s>[INST] {PROMPT} [/INST] Italy.",
    "Gemma": f"<bos><start_of_turn>user\n{PROMPT}<end_of_turn>\n<start_of_turn>model\nItaly.",
}


@pytest.mark.parametrize("text", REPEATED.values(), ids=REPEATED)
def test_strip_prompt_text_that_begins_with_it_loses_it(text: str) -> None:
    assert strip_prompt(text, PROMPT).strip() == "Italy."


def test_strip_prompt_with_a_blank_behind_it_is_found_without_it() -> None:
    assert strip_prompt(PROMPT + "Italy.", PROMPT + " ") == "Italy."


def test_strip_prompt_turns_in_their_order_are_lost() -> None:
    contents = ("Answer in one word.", "Where is Oslo?", "Norway.", "Where is Rome?")
    text = "system\n{}\nuser\n{}\nassistant\n{}\nuser\n{}\nassistant\nItaly.".format(*contents)
    assert strip_prompt(text, *contents) == "Italy."


@pytest.mark.parametrize(
    "text",
    [
        "Where is Rome?\nItaly.",
        "Where is Rome? Italy.",
        "Be brief.\n\nWhere is Rome?\nItaly.",
        "<|im_start|>assistant\nItaly.",
        "<|start_header_id|>assistant<|end_header_id|>\n\nItaly.",
    ],
)
def test_strip_prompt_question_or_opening_of_a_reply_is_lost(text: str) -> None:
    assert strip_prompt(text, "Be brief.", "Where is Rome?") == "Italy."


@pytest.mark.parametrize(
    "text",
    [
        "Italy.",
        "assistant\nQ: Oslo",  # an occupation
        "",
        PROMPT[:-9],  # a part of the prompt
        f"Italy.\n{PROMPT} Italy.",  # a model that repeats its prompt behind its answer
        f"Italy.\nuser\n{PROMPT}\nassistant\nFrance.",
        " <think>Rome</think>Italy.",
    ],
)
def test_strip_prompt_text_that_does_not_begin_with_it_stays(text: str) -> None:
    assert strip_prompt(text, PROMPT) == text


@given(st.text(), st.text())
def test_strip_prompt_any_text_behind_any_prompt_is_what_is_left(prompt: str, text: str) -> None:
    expected = text if prompt.strip() else prompt + text
    assert strip_prompt(prompt.rstrip() + text, prompt) == (expected if prompt.strip() else text)


STOPS = {
    " Italy.\nQ: Oslo": (["\n"], " Italy."),
    " Italy.\r\nQ: Oslo": (["\n"], " Italy."),
    " Italy.\rQ: Oslo": (["\n"], " Italy."),
    "English%\nWhat": (["%"], "English"),
    "Rome\r\n\r\nQ: Oslo?": (["\n\n"], "Rome"),
    "Rome Q: Oslo%": (["%", "Q:"], "Rome "),
    "\nItaly": (["\n"], ""),  # vLLM stops there, too
    "Italy": (["\n", "%"], "Italy"),
    "Italy\nOslo": ([], "Italy\nOslo"),
    "a.b": (["a?", "."], "a"),
}


@pytest.mark.parametrize(("text", "stops", "expected"), [(t, *s) for t, s in STOPS.items()])
def test_cut_at_stops_first_stop_ends_the_text(text: str, stops: list[str], expected: str) -> None:
    assert cut_at_stops(text, stops) == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>Rome</think>\n\nItaly", ("Rome", "Italy")),
        ("Rome</think>Italy", ("Rome", "Italy")),
        ("<think></think>Italy", ("…", "Italy")),
        ("\nItaly", ("", "\nItaly")),
        ("<think>Rome", None),
    ],
)
def test_split_thought_thought_and_answer_are_apart(
    text: str, parts: tuple[str, str] | None
) -> None:
    assert split_thought(text) == parts
