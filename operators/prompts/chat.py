"""Chats as a model's template renders them, and the templates that render something else.

A template is checked before its prompt is read: it must show all that is said, begin a reply, and
write the same on every day.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from factsweep.operators.errors import InputError, reason
from factsweep.operators.prompts.estimate import Estimate
from factsweep.operators.prompts.turns import turns
from factsweep.operators.wording import listed

Chat = Sequence[Mapping[str, str]]
# What opens a thought, in the templates and answers of models that think first, and what ends it.
THOUGHT = r"(<\|?(?:seed:)?think(?:ing)?\|?>|\[THINK\]|◁think▷)"
THOUGHT_END = r"(</(?:seed:)?think(?:ing)?>|\[/THINK\]|◁/think▷)"
# The day that templates print as today: the default of Llama's.
TODAY = date(2024, 7, 26)
_CLOCK = "strftime_now"
_OWN_TEMPLATE = "give a template of your own with model.chat_template=FILE"
# Variables that transformers and Jinja give each template, or leave out on purpose.
_GIVEN = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception"}
_GENERATION = re.compile(r"{%-?\s*(end)?generation\s*-?%}")


def messages(text: str, *, as_turns: bool) -> list[dict[str, str]]:
    """A prompt as the turns of a chat: its own, or one of the user."""
    return turns(text) if as_turns else [{"role": "user", "content": text}]


def rendered(
    tokenizer: Any,
    chats: Sequence[Chat],
    *,
    template_kwargs: Mapping[str, Any],
    may_think: bool = False,
    prefill: str | None = None,
) -> list[str]:
    """Each chat as the template writes it, the reply begun; the first of them is checked.

    Raises:
        InputError: the template takes no such chat, leaves a part of it out, does not read what it
            is told, ends the text, or opens a thought behind the chat and none may be thought.
    """
    _check_named(tokenizer, template_kwargs)
    texts = [_rendered(tokenizer, chat, template_kwargs, prefill) for chat in chats]
    if not isinstance(tokenizer, Estimate):  # only the server knows its template
        _check_told(tokenizer, template_kwargs)
        _check_said(tokenizer, texts[0], chats[0], template_kwargs)
        _check_end(tokenizer, texts[0])
    if not may_think:
        _check_thought(tokenizer, texts[0], chats[0][-1]["content"])
    return texts


def _rendered(tokenizer: Any, chat: Chat, told: Mapping[str, Any], prefill: str | None) -> str:
    from jinja2 import TemplateError, TemplateSyntaxError, UndefinedError

    ending = {"add_generation_prompt": True}
    if prefill is not None:
        chat = [*chat, {"role": "assistant", "content": prefill}]
        ending = {"continue_final_message": True}
    whose = f"the chat template of {tokenizer.name_or_path}"
    try:
        clock = {_CLOCK: TODAY.strftime} if _CLOCK in str(tokenizer.chat_template) else {}
        kwargs = {**clock, **ending, **told}
        return str(tokenizer.apply_chat_template(list(chat), tokenize=False, **kwargs))
    except TemplateSyntaxError as error:
        raise InputError(
            f"{whose} cannot be read, line {error.lineno}: {error.message}; correct it, or give "
            "another with model.chat_template=FILE."
        ) from error
    except UndefinedError as error:
        raise InputError(
            f"{whose} reads a variable that nobody gives ({reason(error)}); give it with "
            f"model.template_kwargs={{NAME: VALUE}}, or {_OWN_TEMPLATE}."
        ) from error
    except (TemplateError, ValueError) as error:
        if prefill is not None:
            raise InputError(
                f"{whose} lets no reply begin with model.prefill={prefill!r} ({reason(error)}); "
                "give it without blanks at its end, or leave it out."
            ) from error
        raise InputError(
            f"{whose} takes no such turns ({reason(error)}); give prompt.system='', which puts the "
            "instruction into the user's first turn."
        ) from error


def _check_named(tokenizer: Any, told: Mapping[str, Any]) -> None:
    """Refuse a tokenizer without a template, or with several of which none is chosen."""
    templates = tokenizer.chat_template
    if templates is None:
        raise InputError(
            f"model.chat_template=true, but {tokenizer.name_or_path} has no chat template; "
            "set model.chat_template=false."
        )
    if isinstance(templates, dict) and told.get("chat_template", "default") not in templates:
        raise InputError(
            f"{tokenizer.name_or_path} has several chat templates ({listed(sorted(templates))}); "
            f"choose one with model.template_kwargs={{chat_template: {sorted(templates)[0]}}}, or "
            f"{_OWN_TEMPLATE}."
        )


def _template(tokenizer: Any, told: Mapping[str, Any]) -> str:
    """The text of the template that is rendered."""
    return str(tokenizer.get_chat_template(told.get("chat_template")))


def _check_told(tokenizer: Any, told: Mapping[str, Any]) -> None:
    """Refuse what a template does not read: it would change nothing, and nobody would know."""
    template = _template(tokenizer, told)
    for name, value in told.items():
        if name == "chat_template" and isinstance(tokenizer.chat_template, dict):
            continue
        if re.search(rf"\b{re.escape(name)}\b", template):
            continue
        if name != "enable_thinking":
            raise InputError(
                f"model.template_kwargs names {name}, which the chat template of "
                f"{tokenizer.name_or_path} does not read; correct the name, or leave it out."
            )
        if value is False and len(told) == 1:
            raise InputError(
                f"the chat template of {tokenizer.name_or_path} has no switch enable_thinking, so "
                "model.thinking=off would change nothing; name its own in model.template_kwargs, "
                "let it think (model.thinking=on), or leave model.thinking out."
            )


def _check_said(tokenizer: Any, prompt: str, chat: Chat, told: Mapping[str, Any]) -> None:
    """Refuse a prompt that lacks a turn: all facts would be asked alike, or without their rules."""
    written = _letters(prompt)
    for turn in chat:
        if _letters(turn["content"]) in written:
            continue
        role, said = turn["role"], turn["content"].strip()
        unknown = _unknown_variables(tokenizer, chat, told)
        why = f", and prints {listed(unknown)}, which nobody gives" if unknown else ""
        fix = "give prompt.system='', or " if role == "system" else ""
        raise InputError(
            f"the chat template of {tokenizer.name_or_path} leaves out what the {role} says "
            f"({said[-60:]!r}){why}; {fix}{_OWN_TEMPLATE}, or set model.chat_template=false. "
            "model.template_kwargs gives what it reads beside the messages."
        )


def _letters(text: str) -> str:
    return "".join(text.split())


def _check_end(tokenizer: Any, prompt: str) -> None:
    """Refuse a prompt behind which no reply can follow."""
    end = tokenizer.eos_token
    if end and prompt.rstrip().endswith(end):
        raise InputError(
            f"the chat template of {tokenizer.name_or_path} ends the prompt with {end}, the end of "
            f"a text, so that no reply can follow; {_OWN_TEMPLATE}."
        )


def _check_thought(tokenizer: Any, prompt: str, asked: str) -> None:
    """A model that is made to think would have its thought measured in place of its answer."""
    behind = prompt.rpartition(asked.strip() or prompt)[2]
    opened = [*re.finditer(THOUGHT, behind)]
    if opened and not re.search(THOUGHT_END, behind[opened[-1].end() :]):
        found = opened[-1]
        raise InputError(
            f"the chat template of {tokenizer.name_or_path} opens a thought ({found[1]}) behind "
            "the prompt, so the thought would be measured and not the answer; let it think first "
            "(model.thinking=on), switch it off with model.thinking=off, if the template has this "
            "switch, or ask without it (model.chat_template=false)."
        )


def warnings(tokenizer: Any, chat: Chat, told: Mapping[str, Any]) -> list[str]:
    """What a template prints that may not be meant: a date, and variables that nobody gives."""
    if isinstance(tokenizer, Estimate):
        return []
    name, template = tokenizer.name_or_path, _template(tokenizer, told)
    found = []
    if _prints_today(tokenizer, chat, told):
        variable = "date_string" if "date_string" in template else "NAME"
        found.append(
            f"the chat template of {name} prints today's date: here it is {TODAY:%d %b %Y} on "
            "every day, and a server may print its own; fix the date with "
            f'model.template_kwargs={{{variable}: "{TODAY:%d %b %Y}"}} where the template reads '
            f"such a variable, or {_OWN_TEMPLATE}."
        )
    if unknown := _unknown_variables(tokenizer, chat, told):
        found.append(
            f"the chat template of {name} prints {listed(unknown)}, which nobody gives; give it "
            f"with model.template_kwargs={{{unknown[0]}: VALUE}}, or {_OWN_TEMPLATE}."
        )
    return found


def _prints_today(tokenizer: Any, chat: Chat, told: Mapping[str, Any]) -> bool:
    if _CLOCK not in _template(tokenizer, told):
        return False
    days = (TODAY, TODAY.replace(year=2023, month=5, day=9))
    clocks = ({_CLOCK: day.strftime} for day in days)
    return len({_rendered(tokenizer, chat, {**clock, **told}, None) for clock in clocks}) > 1


def _unknown_variables(tokenizer: Any, chat: Chat, told: Mapping[str, Any]) -> list[str]:
    """The variables that a template prints though nobody gives them, in alphabetical order."""
    from jinja2 import Environment, TemplateError, Undefined, meta

    printed = set[str]()

    class Recorded(Undefined):
        def __str__(self) -> str:
            printed.add(str(self._undefined_name))
            return ""

    environment = Environment(autoescape=True, extensions=["jinja2.ext.loopcontrols"])
    template = _GENERATION.sub("", _template(tokenizer, told))
    try:
        names = meta.find_undeclared_variables(environment.parse(template))
    except TemplateError:  # an extension that only transformers has
        return []
    known = {*_GIVEN, *environment.globals, *tokenizer.special_tokens_map, *told, _CLOCK}
    # A special token that a tokenizer lacks is left out on purpose.
    names = {name for name in names - known if not name.endswith("_token")}
    _rendered(tokenizer, chat, {**{name: Recorded(name=name) for name in names}, **told}, None)
    return sorted(printed)
