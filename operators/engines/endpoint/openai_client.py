"""What all that ask an OpenAI-compatible endpoint share: the key, and errors without it.

The client is OpenAI's own (`openai`); it sends a request again that timed out, was turned away for
now (429) or failed on the server (5xx), after a pause that grows and varies, or that the server
names (Retry-After).
"""

import os
from pathlib import Path

from factsweep.operators.errors import InputError

KEY = "OPENAI_API_KEY"
_SHOWN = 300  # characters of what a server says


def key(variable: str = KEY) -> str:
    """The key that an environment variable holds; empty if there is none.

    With `_FILE` behind the variable's name it is that of the path of a file, as a pod mounts one.

    Raises:
        InputError: the file cannot be read.
    """
    if value := os.environ.get(variable, ""):
        return value
    if not (path := os.environ.get(f"{variable}_FILE", "")):
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{variable}_FILE={path} cannot be read; mount the file there.") from error


def without(secret: str, said: object) -> str:
    r"""What a server said, without a key that it may repeat, in one line.

    >>> without("sk-123", "Incorrect key\n sk-123.")
    'Incorrect key <key>'
    """
    text = " ".join(str(said).split())
    text = text.replace(secret, "<key>") if secret else text
    return text[:_SHOWN].rstrip(".")


def refusal(model: str, url: str, said: str) -> InputError:
    """The sentence for whoever can correct the address, the name or the key."""
    return InputError(
        f"model {model} at {url} did not answer ({said}); correct the address, the model's name or "
        "the key, or try again later."
    )
