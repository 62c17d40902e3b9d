"""A finding of the doctor's: what was looked at, what was found, and what to do about it."""

from dataclasses import dataclass
from typing import Literal

State = Literal["holds", "warns", "fails"]


@dataclass(frozen=True)
class Finding:
    """One check: of what, what was looked at, what was found, and the fix where it fails."""

    group: str
    check: str
    state: State
    found: str
    fix: str = ""

    @classmethod
    def of(cls, check: str, found: str, *, fails: str = "", warns: str = "") -> "Finding":
        """One that holds unless there is a fix, for what fails or what one should know of.

        Its group is that of all that is looked at there.
        """
        state: State = "fails" if fails else "warns" if warns else "holds"
        return cls("", check, state, found, fails or warns)

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        return f"  {self.state:<6} {self.check}: {self.found}{fix}"
