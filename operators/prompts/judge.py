"""The setting of a judge: an instruction, and its three words."""

from dataclasses import dataclass

from factsweep.operators.errors import InputError
from factsweep.operators.matching.verdicts import read_verdict
from factsweep.operators.prompts.chat import System, variant_of
from factsweep.operators.prompts.setting import LanguageWords, Setting

_WORDS = LanguageWords("en", mask="", question="", asks="", answers="Verdict:")


@dataclass(frozen=True)
class JudgePrompt(Setting):
    """How a judge is asked about an answer (conf/prompt/judge.yaml).

    `instruct` precedes the answer; `correct`, `incorrect` and `not_attempted` are the three words.
    With `with_reminder`, `reminder` stands below the instruction: for answers without a verdict.
    """

    words: LanguageWords = _WORDS
    instruct: System = None
    reminder: System = None
    correct: str = "correct"
    incorrect: str = "incorrect"
    not_attempted: str = "not attempted"
    with_reminder: bool = False

    def __post_init__(self) -> None:
        """Refuse verdicts that are not three different words."""
        object.__setattr__(self, "style", "question")
        if not self.with_reminder:
            object.__setattr__(self, "reminder", None)
        super().__post_init__()
        states = dict(zip(self.verdicts, "abc", strict=True))
        if "".join(read_verdict(word, states) or "" for word in self.verdicts) != "abc":
            raise InputError(
                "prompt.correct, prompt.incorrect and prompt.not_attempted must be three different "
                f"words, and are {', '.join(map(repr, self.verdicts))}."
            )

    @property
    def verdicts(self) -> list[str]:
        """The words for correct, incorrect and not attempted, in this order."""
        return [self.correct, self.incorrect, self.not_attempted]

    @property
    def name(self) -> str:
        """The setting's name in tables: `judge`, `judge-again`."""
        return "judge-again" if self.with_reminder else "judge"

    @property
    def variant(self) -> str | None:
        """The column `variant`: the differences from the defaults."""
        return variant_of(self, "correct", "incorrect", "not_attempted")

    @property
    def instruction(self) -> str:
        """The lines above every answer."""
        return "".join(f"{line.strip()}\n" for line in (self.instruct, self.reminder) if line)
