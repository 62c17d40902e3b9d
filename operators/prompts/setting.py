"""How facts are asked: the settings of BELIEF-ICL (section 3.1) and the words they are asked in."""

from dataclasses import dataclass
from typing import Annotated, Literal

import polars as pl
from pydantic import Field

from operators.errors import InputError

Context = Literal["zero-shot", "random", "relation", "template"]
Style = Literal["mask", "question"]
Templates = Literal["all", "manual", "question"]

MASK = "[MASK]"
MOST_SHOTS = 1_000
_INSTRUCTIONS = {
    "mask": "Predict the [MASK] in each sentence in one word.",
    "question": "Answer each question in one word.",
}


@dataclass(frozen=True)
class Setting:
    """What determines the text of a prompt, apart from the facts and the seed.

    `scope` says for how many prompts a demonstration is drawn: `prompt` draws afresh for each (the
    paper's words), `shared` once for all prompts of a (relation, template), which lets an engine
    reuse the prefix.
    """

    context: Context
    shots: Annotated[int, Field(ge=0, le=MOST_SHOTS)]
    style: Style = "mask"
    templates: Templates = "all"
    scope: Literal["shared", "prompt"] = "shared"

    def __post_init__(self) -> None:
        """Refuse shots that do not go with the context, and set to null what makes no difference.

        Without shots there is no scope; in question style all templates are question templates.
        """
        if (self.shots == 0) != (self.context == "zero-shot"):
            raise InputError(
                f"prompt.context={self.context} does not go with prompt.shots={self.shots}; "
                "zero-shot has 0 shots, every other context at least 1."
            )
        if not self.shots:
            object.__setattr__(self, "scope", "shared")
        if self.style == self.templates == "question":
            object.__setattr__(self, "templates", "all")

    @property
    def name(self) -> str:
        """As the setting stands in tables: `zero-shot`, `4-template`."""
        return "zero-shot" if self.context == "zero-shot" else f"{self.shots}-{self.context}"

    @property
    def variant(self) -> str | None:
        """The departures from the defaults, as they stand in the column `variant`."""
        chosen = {"style": self.style, "templates": self.templates, "scope": self.scope}
        defaults = {"style": "mask", "templates": "all", "scope": "shared"}
        return ",".join(f"{k}={v}" for k, v in chosen.items() if v != defaults[k]) or None

    @property
    def instruction(self) -> str:
        """The first line of every prompt (section 3.1 and appendix D.1)."""
        return _INSTRUCTIONS[self.style] + "\n"


def eligible(templates: pl.DataFrame, setting: Setting) -> pl.DataFrame:
    """The templates that the setting uses, with the column `asked`: [Y] turned into what is asked.

    In question style only question templates are used, and the trailing `[Y].` is dropped.

    >>> texts = pl.DataFrame({
    ...     "text": ["[Y] made [X].", "Who made [X]? [Y]."], "style": ["statement", "question"],
    ... })
    >>> mask = Setting("zero-shot", 0, templates="question")
    >>> eligible(texts, mask)["asked"].to_list()
    ['Who made [X]? [MASK].']
    >>> eligible(texts, Setting("zero-shot", 0, style="question"))["asked"].to_list()
    ['Who made [X]?']
    """
    if setting.templates == "manual":
        templates = templates.filter(pl.col("origin") == "manual")
    if "question" in (setting.templates, setting.style):
        templates = templates.filter(pl.col("style") == "question")
    text = pl.col("text")
    if setting.style == "question":
        return templates.with_columns(asked=text.str.replace(r"\s*\[Y\]\s*\.?$", ""))
    return templates.with_columns(asked=text.str.replace_all("[Y]", MASK, literal=True))


def filled(asked: pl.Expr, name: pl.Expr) -> pl.Expr:
    """The sentence that asks after a subject by one of its names."""
    return asked.str.replace_all("[X]", name, literal=True)


def demonstration(asked: pl.Expr, name: pl.Expr, label: pl.Expr) -> pl.Expr:
    """A question with its answer, two lines (appendix E)."""
    return pl.concat_str(pl.lit("Q: "), filled(asked, name), pl.lit("\nA: "), label, pl.lit(".\n"))


def query(sentence: pl.Expr) -> pl.Expr:
    """The question that is left open; no trailing space: the answer's first token has one."""
    return pl.concat_str(pl.lit("Q: "), sentence, pl.lit("\nA:"))
