"""A budget: how many of a setting's prompts are asked, to estimate what all would give."""

import re
from dataclasses import dataclass

from operators.errors import InputError

_TEXT = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>%|k|M)?")
_TIMES = {None: 1, "k": 1000, "M": 1_000_000}


@dataclass(frozen=True)
class Budget:
    """A share of the prompts (0 to 1), or a number of them; the other is null."""

    share: float | None
    n_prompts: int | None

    def of(self, n_prompts: int) -> int:
        """How many of so many prompts it is."""
        if self.share is not None:
            return round(self.share * n_prompts)
        return min(n_prompts, self.n_prompts or 0)


def budget(given: str | int) -> Budget:
    """Read a budget as it is given.

    Raises:
        InputError: it is none.

    >>> budget("1%"), budget("100k"), budget(5000).n_prompts
    (Budget(share=0.01, n_prompts=None), Budget(share=None, n_prompts=100000), 5000)
    """
    found = _TEXT.fullmatch(str(given))
    number = float(found["number"]) if found else 0.0
    if not found or number <= 0 or (found["unit"] == "%" and number > 100):
        raise InputError(
            f"budget={given}; it must be a share of the prompts such as 1%, or a number of them "
            "such as 5000 or 100k."
        )
    if found["unit"] == "%":
        return Budget(number / 100, None)
    return Budget(None, round(number * _TIMES[found["unit"]]))
