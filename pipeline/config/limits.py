"""Types of fields with a range: their upper limits are far above any use, and stop slips."""

from typing import Annotated

from pydantic import BeforeValidator, Field

# NUL ends a text for the operating system, and so changes what a name names.
AnyText = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
NotEmpty = Annotated[AnyText, Field(min_length=1)]  # a text to stop at may be a blank
Text = Annotated[NotEmpty, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
# Slurm's notation of a time; bare minutes come as a number.
SlurmTime = Annotated[Text, BeforeValidator(lambda time: str(time) if type(time) is int else time)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
CountOrNone = Annotated[int, Field(ge=0, le=10_000_000)]  # 0: none of them
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=1, le=604_800)]  # a week
WholeSeconds = Annotated[int, Field(ge=0, le=604_800)]
