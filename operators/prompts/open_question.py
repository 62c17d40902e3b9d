"""The setting of open questions: an instruction, examples with their answers, the question."""

from dataclasses import dataclass

from factsweep.operators.prompts.chat import System, variant_of
from factsweep.operators.prompts.setting import Setting

INSTRUCTION = "Answer each question with a few words."


@dataclass(frozen=True)
class OpenQuestion(Setting):
    """BELIEF's way to ask a question, with an instruction of its own.

    `instruct` is the first line of a prompt; an empty one is left out.
    """

    instruct: System = INSTRUCTION

    def __post_init__(self) -> None:
        """Ask questions, in any style of the templates."""
        object.__setattr__(self, "style", "question")
        super().__post_init__()

    @property
    def name(self) -> str:
        """The setting's name in tables: `questions`, `questions-5-shot`, `questions-5-relation`."""
        examples = {"zero-shot": "", "random": f"-{self.shots}-shot"}
        return f"questions{examples.get(self.context, f'-{self.shots}-{self.context}')}"

    @property
    def variant(self) -> str | None:
        """The column `variant`: the differences from the defaults."""
        language = {} if self.words.language == "en" else {"language": self.words.language}
        return variant_of(self, "scope", "instruct", **language)

    @property
    def instruction(self) -> str:
        """The first line of every prompt."""
        return f"{self.instruct}\n" if self.instruct else ""
