"""Bodies of replies in the layouts of servers, and in unknown layouts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.engines.endpoint import response_parsing

texts = st.text(max_size=9)
thoughts = st.one_of(
    st.builds(lambda text: {"type": "thinking", "thinking": text}, texts),
    st.builds(
        lambda text: {"type": "thinking", "thinking": [{"type": "text", "text": text}]}, texts
    ),
    st.builds(lambda text: {"type": "reasoning", "summary": [{"text": text}]}, texts),
    st.just({"type": "redacted_thinking", "data": "x"}),
)


def part(text: str, layout: str) -> Any:
    return {
        "bare": text,
        "list": [text],
        "null": [None, text],
        "object": {"type": "text", "text": {"value": text, "annotations": []}},
    }.get(layout, {"type": layout, "text": text})


@given(
    st.lists(
        st.one_of(
            st.tuples(
                texts,
                st.sampled_from(
                    ("bare", "list", "null", "object", "text", "output_text", "input_text")
                ),
            ),
            thoughts,
        )
    )
)
def test_read_content_has_the_text_of_all_parts_and_no_thought(parts: list[Any]) -> None:
    content = [part(*item) if isinstance(item, tuple) else item for item in parts]
    written = "".join(item[0] for item in parts if isinstance(item, tuple))
    assert (response_parsing.read_content(content).text or "") == written


@pytest.mark.parametrize(
    "content",
    [
        *(5, 1.5, True, {}, {"answer": "Oslo"}, {"type": "text", "text": 5}, ["Oslo", 5]),
        [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "Oslo"}],
    ],
)
def test_read_content_of_another_layout_is_refused_with_its_beginning(content: Any) -> None:
    with pytest.raises(ValueError, match="the content is no text: ") as caught:
        response_parsing.read_content(content)
    assert response_parsing.quote(content) in str(caught.value)


def test_read_content_keeps_thoughts_and_refusals_apart() -> None:
    hidden = {"type": "redacted_thinking", "data": "x"}
    no = {"type": "refusal", "refusal": "I will not."}
    assert response_parsing.read_content([hidden, "Oslo"]) == ("Oslo", "…", "")
    assert response_parsing.read_content([no]) == (None, "", "I will not.")
    assert response_parsing.read_content("a\ud800b") == ("a\ufffdb", "", "")
    assert (
        response_parsing.read_content(None) == response_parsing.read_content([]) == (None, "", "")
    )
    of_gemini = [{"text": "Hm.", "thought": True}, {"text": "Oslo"}]
    assert response_parsing.read_content(of_gemini) == ("Oslo", "Hm.", "")


BODIES: list[tuple[str, int, str]] = [
    ('{"error": {"message": "busy", "code": 503}}', 503, "busy"),
    ('{"error": {"message": "busy", "code": "503"}}', 503, "busy"),
    ('{"error": "no", "code": "model_not_found"}', 404, "no"),
    ('{"object": "error", "message": "gone", "code": 404}', 404, "gone"),
    ('{"error": {"type": "authentication_error", "message": "key"}}', 401, "key"),
    ('{"error": {"type": "NotFoundError", "message": "?"}}', 404, "?"),
    ('{"statusCode": 401, "message": "token"}', 401, "token"),
    ('{"error": {"type": "overloaded_error"}}', 529, "overloaded_error"),
    ('{"choices": [{"error": {"code": 502, "message": "up"}, "text": ""}]}', 502, "up"),
    ('{"detail": "Not yet"}', 520, '{"detail": "Not yet"}'),
    ('{"choices": null}', 520, '{"choices": null}'),
    ('{"choices": []}', 520, '{"choices": []}'),
    ("<html>Log\n in", 520, "<html>Log in"),
    ("", 520, "an empty body"),
    ("[1]", 520, "[1]"),
    ('{"choices": [{"text": "Oslo"}], "error": null}', 200, ""),
]


@pytest.mark.parametrize(("body", "status", "message"), BODIES)
def test_body_that_is_no_answer_has_a_status_and_what_was_said(
    body: str, status: int, message: str
) -> None:
    assert response_parsing.status_of_body(body.encode()) == status
    assert message in response_parsing.message_in(body.encode())
