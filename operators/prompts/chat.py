"""Chats: turns as the lines of a text, and as a model's template renders them.

A chat is stored as a text with one JSON object per line, like OpenAI's `messages`; the query is the
last line. A template must write every turn, let a reply follow, and write the same every day.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import Field

from factsweep.operators.errors import InputError, reason
from factsweep.operators.prompts.estimate import Estimate
from factsweep.operators.wording import join_list as in_words

Role = Literal["system", "user", "assistant"]
# The form of a prompt for a chat model: one turn of the user, or several turns.
As = Annotated[Literal["chat", "turns"] | None, Field(alias="as")]
System = Annotated[str, Field(max_length=100_000)] | None


def turn(role: Role, content: pl.Expr) -> pl.Expr:
    """A turn as a line.

    >>> print(pl.select(turn("user", pl.lit("Who made it?"))).item())
    {"role":"user","content":"Who made it?"}
    <BLANKLINE>
    """
    line = pl.struct(role=pl.lit(role), content=content).struct.json_encode()
    return pl.concat_str(line, pl.lit("\n"))


def turns(text: str) -> list[dict[str, str]]:
    """The turns that are the lines of a text.

    >>> turns('{"role":"user","content":"Who made it?"}')
    [{'role': 'user', 'content': 'Who made it?'}]
    """
    return [json.loads(line) for line in text.split("\n") if line]


def parse_chats(text: pl.Expr) -> pl.Expr:
    """Chats as lists of turns: role, content."""
    fields = pl.Struct({"role": pl.String, "content": pl.String})
    lines = text.str.strip_chars("\n").str.split("\n")
    return lines.list.eval(pl.element().str.json_decode(fields))


def format_chats(text: pl.Expr) -> pl.Expr:
    """A chat for people: one line per turn, with its role."""
    return text.map_elements(
        lambda chat: "".join(f"{turn['role']}: {turn['content']}\n" for turn in turns(chat)),
        return_dtype=pl.String,
    )


def variant_of(setting: Any, *names: str, **differences: str) -> str | None:
    """The column `variant`: the named fields of a setting that differ from their defaults.

    Further differences follow, then the form for a chat model, a system prompt by its digest. Null:
    there is no difference.
    """
    defaults = {field.name: field.default for field in fields(setting)}
    values = {name: getattr(setting, name) for name in names}
    values = {name: value for name, value in values.items() if value != defaults[name]}
    values = {n: str(v).lower() if isinstance(v, bool) else v for n, v in values.items()}
    values |= differences
    if "as_" in defaults:
        values |= {} if setting.as_ is None else {"as": setting.as_}
        if setting.system is not None:
            digest = hashlib.sha256(setting.system.encode()).hexdigest()[:8]
            values["system"] = digest if setting.system else "none"
    return ",".join(f"{name}={value}" for name, value in values.items()) or None


def check(form: str | None, system: str | None) -> None:
    """Refuse a system prompt without turns.

    Raises:
        InputError: it names both fields.
    """
    if system is not None and form != "turns":
        raise InputError("prompt.system is a turn of its own; give prompt.as=turns with it.")


Chat = Sequence[Mapping[str, str]]
# The marks of a thought's beginning and end, in templates and answers of models that think first.
THOUGHT = r"(<\|?(?:seed:)?think(?:ing)?\|?>|\[THINK\]|◁think▷)"
THOUGHT_END = r"(</(?:seed:)?think(?:ing)?>|\[/THINK\]|◁/think▷)"
# The day that templates print as today: the default of Llama's.
TODAY = date(2024, 7, 26)
_CLOCK = "strftime_now"
_OWN_TEMPLATE = "give a template of your own with model.chat_template=FILE"
# Variables that transformers defines for each template, or leaves out on purpose.
_GIVEN = {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", _CLOCK}
_GENERATION = re.compile(r"{%-?\s*(end)?generation\s*-?%}")


def messages(text: str, *, as_turns: bool) -> list[dict[str, str]]:
    """A prompt as the turns of a chat: its own, or one of the user."""
    return turns(text) if as_turns else [{"role": "user", "content": text}]


def render_chats(
    tokenizer: Any,
    chats: Sequence[Chat],
    *,
    template_kwargs: Mapping[str, Any],
    may_think: bool = False,
    prefill: str | None = None,
) -> list[str]:
    """Each chat as the template writes it, with the reply begun; the first chat is checked.

    Raises:
        InputError: the template takes no such chat, leaves out a turn, does not read
            `template_kwargs`, ends the text, or opens a thought without `may_think`.
    """
    _check_choice(tokenizer, template_kwargs)
    texts = [_render_chat(tokenizer, chat, template_kwargs, prefill) for chat in chats]
    if not isinstance(tokenizer, Estimate):  # a server renders its own template
        _check_kwargs(tokenizer, template_kwargs)
        _check_turns(tokenizer, texts[0], chats[0], template_kwargs)
        end = tokenizer.eos_token
        if end and texts[0].rstrip().endswith(end):
            raise InputError(
                f"the chat template of {tokenizer.name_or_path} ends the prompt with {end}, the "
                f"end of a text, so that no reply can follow; {_OWN_TEMPLATE}."
            )
    if not may_think:
        _check_thought(tokenizer, texts[0], chats[0][-1]["content"])
    return texts


def _render_chat(
    tokenizer: Any, chat: Chat, template_kwargs: Mapping[str, Any], prefill: str | None
) -> str:
    from jinja2 import TemplateError, TemplateSyntaxError, UndefinedError

    failures = (TemplateError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
    ending = {"add_generation_prompt": True}
    if prefill is not None:
        chat = [*chat, {"role": "assistant", "content": prefill}]
        ending = {"continue_final_message": True}
    template = f"the chat template of {tokenizer.name_or_path}"
    try:
        clock = {_CLOCK: TODAY.strftime} if _CLOCK in str(tokenizer.chat_template) else {}
        kwargs = {**clock, **ending, **template_kwargs}
        return str(tokenizer.apply_chat_template(list(chat), tokenize=False, **kwargs))
    except TemplateSyntaxError as error:
        raise InputError(
            f"{template} cannot be read, line {error.lineno}: {error.message}; correct it, or give "
            "another with model.chat_template=FILE."
        ) from error
    except UndefinedError as error:
        unknown = re.match(r"'(\w+)' is undefined", str(error))
        raise InputError(
            f"{template} reads an unknown variable ({reason(error)}); give it with "
            f"model.template_kwargs={{{unknown[1] if unknown else 'NAME'}: VALUE}}, or "
            f"{_OWN_TEMPLATE}."
        ) from error
    except failures as error:
        if prefill is not None:
            raise InputError(
                f"{template} lets no reply begin with model.prefill={prefill!r} ({reason(error)}); "
                "give it without blanks at its end, or leave it out."
            ) from error
        fix = f"{_OWN_TEMPLATE}, or set model.chat_template=false"
        if chat[0]["role"] == "system":
            fix = "give prompt.system='', which puts the instruction into the user's first turn"
        for name in _list_variables(tokenizer, template_kwargs):
            if re.search(rf"\b{name}\b", str(error)):  # the template asks for it
                fix = (
                    f"give {name} with model.template_kwargs={{{name}: VALUE}}, or {_OWN_TEMPLATE}"
                )
        raise InputError(f"{template} takes no such turns ({reason(error)}); {fix}.") from error


def _list_variables(tokenizer: Any, template_kwargs: Mapping[str, Any]) -> list[str]:
    from jinja2 import Environment, TemplateError, meta

    environment = Environment(autoescape=True, extensions=["jinja2.ext.loopcontrols"])
    template = _GENERATION.sub("", _template(tokenizer, template_kwargs))
    try:
        names = meta.find_undeclared_variables(environment.parse(template))
    except TemplateError:  # an extension that only transformers has
        return []
    # A special token that a tokenizer lacks is left out on purpose.
    names = {name for name in names if not name.endswith("_token")}
    return sorted(names - {*_GIVEN, *environment.globals, *template_kwargs})


def _check_choice(tokenizer: Any, template_kwargs: Mapping[str, Any]) -> None:
    """Refuse a tokenizer without a template, or with several and no choice among them."""
    templates = tokenizer.chat_template
    if templates is None:
        raise InputError(
            f"model.chat_template=true, but {tokenizer.name_or_path} has no chat template; "
            "set model.chat_template=false."
        )
    choice = template_kwargs.get("chat_template", "default")
    if isinstance(templates, dict) and choice not in templates:
        raise InputError(
            f"{tokenizer.name_or_path} has several chat templates ({in_words(sorted(templates))}); "
            f"choose one with model.template_kwargs={{chat_template: {sorted(templates)[0]}}}, or "
            f"{_OWN_TEMPLATE}."
        )


def _template(tokenizer: Any, template_kwargs: Mapping[str, Any]) -> str:
    return str(tokenizer.get_chat_template(template_kwargs.get("chat_template")))


def _check_kwargs(tokenizer: Any, template_kwargs: Mapping[str, Any]) -> None:
    """Refuse variables that the template does not read: they would change nothing."""
    template = _template(tokenizer, template_kwargs)
    for name, value in template_kwargs.items():
        if name == "chat_template" and isinstance(tokenizer.chat_template, dict):
            continue
        if re.search(rf"\b{re.escape(name)}\b", template):
            continue
        if name != "enable_thinking":
            raise InputError(
                f"model.template_kwargs names {name}, which the chat template of "
                f"{tokenizer.name_or_path} does not read; correct the name, or leave it out."
            )
        if value is False and len(template_kwargs) == 1:
            raise InputError(
                f"the chat template of {tokenizer.name_or_path} has no switch enable_thinking, so "
                "model.thinking=off would change nothing; name its own in model.template_kwargs, "
                "let it think (model.thinking=on), or leave model.thinking out."
            )


def _check_turns(
    tokenizer: Any, prompt: str, chat: Chat, template_kwargs: Mapping[str, Any]
) -> None:
    prompt_letters = "".join(prompt.casefold().split())
    for turn in chat:
        if "".join(turn["content"].casefold().split()) in prompt_letters:
            continue
        role, content = turn["role"], turn["content"].strip()
        unknown = _unknown_variables(tokenizer, chat, template_kwargs)
        cause = f", and prints the unknown variable {in_words(unknown)}" if unknown else ""
        fix = "give prompt.system='', or " if role == "system" else ""
        raise InputError(
            f"the chat template of {tokenizer.name_or_path} leaves out the turn of the {role} "
            f"({content[-60:]!r}){cause}; {fix}{_OWN_TEMPLATE}, give its variables with "
            "model.template_kwargs, or set model.chat_template=false."
        )


def _check_thought(tokenizer: Any, prompt: str, question: str) -> None:
    """Refuse an open thought: it would be measured instead of the answer."""
    ending = prompt.rpartition(question.strip() or prompt)[2]
    openings = [*re.finditer(THOUGHT, ending)]
    if openings and not re.search(THOUGHT_END, ending[openings[-1].end() :]):
        raise InputError(
            f"the chat template of {tokenizer.name_or_path} opens a thought ({openings[-1][1]}) "
            "behind the prompt, so the thought would be measured and not the answer; let it think "
            "first (model.thinking=on), switch it off with model.thinking=off, if the template has "
            "this switch, or ask without it (model.chat_template=false)."
        )


def warnings(tokenizer: Any, chat: Chat, template_kwargs: Mapping[str, Any]) -> list[str]:
    """A sentence for a date that the template prints, and one for its unknown variables."""
    if isinstance(tokenizer, Estimate):
        return []
    name, template = tokenizer.name_or_path, _template(tokenizer, template_kwargs)
    sentences = []
    days = (TODAY, TODAY.replace(year=2023, month=5, day=9))
    variables = [{_CLOCK: day.strftime, **template_kwargs} for day in days]
    if (
        _CLOCK in template
        and len({_render_chat(tokenizer, chat, options, None) for options in variables}) > 1
    ):
        variable = "date_string" if "date_string" in template else "NAME"
        sentences.append(
            f"the chat template of {name} prints today's date: here it is {TODAY:%d %b %Y} on "
            "every day, and a server may print its own; fix the date with "
            f'model.template_kwargs={{{variable}: "{TODAY:%d %b %Y}"}} where the template reads '
            f"such a variable, or {_OWN_TEMPLATE}."
        )
    if unknown := _unknown_variables(tokenizer, chat, template_kwargs):
        sentences.append(
            f"the chat template of {name} prints the unknown variable {in_words(unknown)}; give "
            f"it with model.template_kwargs={{{unknown[0]}: VALUE}}, or {_OWN_TEMPLATE}."
        )
    return sentences


def _unknown_variables(tokenizer: Any, chat: Chat, template_kwargs: Mapping[str, Any]) -> list[str]:
    from jinja2 import Undefined

    printed = set[str]()

    class Recorder(Undefined):
        def __str__(self) -> str:
            printed.add(str(self._undefined_name))
            return ""

    names = _list_variables(tokenizer, template_kwargs)
    recorders = {name: Recorder(name=name) for name in names}
    _render_chat(tokenizer, chat, {**recorders, **template_kwargs}, None)
    return sorted(printed)
