"""One rule for the text of an answer: no prompt, no thought, no text behind a stop."""

import re
from collections.abc import Sequence
from functools import cache

from factsweep.operators.prompts.chat import THOUGHT, THOUGHT_END

_LINE_END = r"(?:\r\n|\r|\n)"
# The marks of a chat template around a turn. The mark of a thought is not one of them.
_MARK = rf"(?!{THOUGHT})(?:<[^<>\s]{{1,60}}>|<</?SYS>>|\[/?INST\]|\ufeff)"
_BEFORE_PROMPT = re.compile(rf"\s*(?:{_MARK}|(?:system|user|human)\s*(?::|\n))", re.IGNORECASE)
_ROLE = r"(?:assistant|model)(?:\s*:|\s*\n|(?=<))"
_REPLY_OPENING = re.compile(rf"\A(?:\s*{_MARK})+{_ROLE}(?:\s*{_MARK})*\s*", re.IGNORECASE)
_AFTER_PROMPT = re.compile(rf"(?:\s*(?:{_MARK}|{_ROLE}))+\s*", re.IGNORECASE)


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    r"""Return the text before its first stop; a line end in a stop is a line end of any kind."""
    stop = _pattern(tuple(stops)).search(text) if stops else None
    return text[: stop.start()] if stop else text


@cache
def _pattern(stops: tuple[str, ...]) -> re.Pattern[str]:
    lines_of_stops = (re.split(_LINE_END, stop) for stop in stops)
    return re.compile("|".join(_LINE_END.join(map(re.escape, lines)) for lines in lines_of_stops))


def strip_prompt(text: str, *prompt: str) -> str:
    """Return the text behind the prompt, or the text itself if it does not begin with its prompt.

    `prompt` is one text, or the contents of a chat's turns; the answer may repeat the last alone.
    Blanks and line ends are not compared: tokenizers change them. The marks of a chat template
    around the prompt, and at the opening of a reply, are removed.
    """
    answer = _text_after(text, prompt)
    if answer is None and len(prompt) > 1 and len(prompt[-1].split()) > 2:
        answer = _text_after(text, prompt[-1:])
    if answer is None:
        return _REPLY_OPENING.sub("", text, count=1)
    return answer if len(prompt) == 1 else answer.lstrip()


def _text_after(text: str, prompt: Sequence[str]) -> str | None:
    """Return the text after the parts of a prompt; null: it does not begin with them."""
    letters = "".join(text.split())
    starts, end = [], 0
    for part in ("".join(part.split()) for part in prompt):
        start = letters.find(part, end)
        if start < 0:
            return None
        starts.append(start)
        end = start + len(part)
    if not end:
        return None
    places = [letter.end() for letter in re.finditer(r"\S", text)]
    answer = text[places[end - 1] :]
    if starts[0] == 0:
        return answer
    if _BEFORE_PROMPT.match(text) is None:
        return None
    return _AFTER_PROMPT.sub("", answer, count=1) if _AFTER_PROMPT.match(answer) else answer


def split_thought(text: str) -> tuple[str, str] | None:
    """Return the thought (which may be empty) and the answer; null: the thought does not end.

    >>> split_thought("<think>Rome is in Italy.</think>Italy"), split_thought("Italy")
    (('Rome is in Italy.', 'Italy'), ('', 'Italy'))
    >>> split_thought("<think>Rome")
    """
    parts = re.fullmatch(rf"(?:\s*{THOUGHT})?(.*?){THOUGHT_END}(.*)", text, re.DOTALL)
    if parts is not None:
        return parts[2].strip() or "…", parts[4].lstrip()
    return None if re.match(rf"\s*{THOUGHT}", text) else ("", text)
