"""What a server charges, and a purse that many clients pay from."""

from dataclasses import dataclass
from typing import NamedTuple

_AROUND = 64  # tokens that a chat template may put around a prompt


class Prices(NamedTuple):
    """Per million tokens of prompts and of answers."""

    prompt: float
    output: float

    def of(self, prompt_tokens: float, output_tokens: float) -> float:
        """What so many tokens cost.

        >>> Prices(2.0, 10.0).of(500_000, 1000)
        1.01
        """
        return (prompt_tokens * self.prompt + output_tokens * self.output) / 1e6

    def at_most(self, text: str, output_tokens: int) -> float:
        """What an answer to a text costs at most: no tokenizer makes more tokens than bytes."""
        return self.of(len(text.encode()) + _AROUND, output_tokens)


@dataclass
class Purse:
    """What may be spent in all, what is spent, and what is set aside for what is under way.

    What an engine that died had set aside stays so: nobody knows whether it was charged.
    """

    limit: float
    spent: float = 0.0
    reserved: float = 0.0

    def reserve(self, cost: float) -> bool:
        """Set something aside; returns whether there is so much left."""
        if self.spent + self.reserved + cost > self.limit:
            return False
        self.reserved += cost
        return True

    def settle(self, reserved: float, cost: float) -> None:
        """Pay for something with what was set aside for it."""
        self.reserved -= reserved
        self.spent += cost
