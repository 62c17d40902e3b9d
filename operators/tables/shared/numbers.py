"""Numbers as the BELIEF papers print them, by metric."""

from collections.abc import Mapping
from types import MappingProxyType

SHARE = "z.4f"

# How a metric's number is printed, where it is not a share.
FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "relations": ",.0f",
        "templates": ",.0f",
        "unique_triples": ",.0f",
        "derived_triples": ",.0f",
        "pairs": ",.0f",
        "prompts": ",.0f",
        "quantity": ".2f",
        "semantics": "z.2f",
        "manual_rank": "z.2f",
        "runtime_hours": ".4g",
        "billions_of_parameters": ",g",
        "billions_of_training_tokens": ",g",
        "billions_of_training_words": ",g",
    }
)


def printed(value: float | None, metric: str, *, signed: bool = False) -> str:
    """The number as text, `signed` with its plus; a dash for null. Shares have no leading zero.

    >>> printed(0.035, "fluctuation_sd"), printed(-0.0131, "ovconf", signed=True)
    ('.0350', '-.0131')
    >>> printed(21140500, "derived_triples"), printed(0.0, "manual_rank", signed=True)
    ('21,140,500', '+0.00')
    >>> printed(None, "consist")
    '–'
    """
    if value is None:
        return "–"
    form = FORMATS.get(metric, SHARE)
    text = f"{value:{'+' * signed}{form}}"
    return text.replace("0.", ".", 1) if form == SHARE and abs(value) < 1 else text
