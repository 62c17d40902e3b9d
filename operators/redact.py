"""Secrets out of what is written: by the name of a field, by their shape, or known beforehand.

What is left out is named, but for the credentials in a URL: without them it is a URL still, and
whoever opens it has credentials of its own.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "[redacted]"

# The end of a name: HF_TOKEN, aws_secret_access_key, apiKey; not max_tokens, tokenizer or monkey.
_NAME = re.compile(
    r"(?:^|[_\-. ]|(?<=[a-z]))"
    r"(?:token|secret|password|passwd|passphrase|credentials?|authorization"
    r"|(?:api|access|private|secret|account)[_\-]?key)$",
    re.IGNORECASE,
)
# What tells a secret by itself: of the hub, of AWS, GitHub, OpenAI and its like; a header; a query.
_SHAPES = re.compile(
    r"hf_[A-Za-z0-9]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|\bsk-[\w\-]{20,}"
    r"|(?<=Bearer )[\w\-.~+/]{8,}=*"
    r"|(?<=Signature=)[^&\s\"']+|(?<=[?&]sig=)[^&\s\"']+"
    r"|(?<=X-Amz-Credential=)[^&\s\"']+|(?<=X-Amz-Security-Token=)[^&\s\"']+"
)
# A secret key of AWS may have slashes in it.
_USERINFO = re.compile(r"(?<=://)(?:[^/\s@:\"']+:[^\s@\"']+|[^/\s@\"']+)@")
_SHORTEST = 8  # a known secret that is shorter would tear words apart


def is_secret(name: str) -> bool:
    """Whether what stands under this name is a secret.

    >>> [is_secret(each) for each in ("HF_TOKEN", "api_key", "max_tokens", "tokenizer", "key")]
    [True, True, False, False, False]
    """
    return _NAME.search(name) is not None


def redactor(known: Collection[str] = ()) -> Callable[[str], str]:
    """What takes the secrets out of a text; `known` ones are taken out wherever they stand.

    >>> redactor()("s3://AKIDEXAMPLE:wJalr/K7@bucket/sweeps refused hf_abcdefghijklmnopqrst")
    's3://bucket/sweeps refused [redacted]'
    >>> redactor(["correct horse"])("the password is correct horse.")
    'the password is [redacted].'
    """
    told = sorted((each for each in known if len(each) >= _SHORTEST), key=len, reverse=True)
    parts = [_SHAPES.pattern, *map(re.escape, told)]
    hidden = re.compile("|".join(parts))
    return lambda text: hidden.sub(HIDDEN, _USERINFO.sub("", text))


def holds_secret(value: Any) -> str | None:
    """The dotted name of the first text in a nested value that tells a secret; null: none does.

    Only what a text looks like counts, not the name that it stands under: rows of data have names
    of their own.

    >>> holds_secret({"engine": {"stop": ["x", "hf_abcdefghijklmnopqrst"]}, "token": "Paris"})
    'engine.stop.1'
    """
    clean = redactor()
    return next((name for name, text in texts(value) if clean(text) != text), None)


def texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a nested value, each with its dotted name.

    >>> list(texts({"stop": ["x"], "n": 1}, "engine"))
    [('engine.stop.0', 'x')]
    """
    if isinstance(value, str):
        yield name, value
    parts: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else ()
    if isinstance(value, list | tuple):
        parts = enumerate(value)
    for inner, each in parts:
        yield from texts(each, f"{name}.{inner}".removeprefix("."))


def redacted(value: Any, known: Collection[str] = ()) -> Any:
    """A nested value without its secrets; what holds none is equal to what it was.

    Under the name of a secret only texts are hidden: a number or a null is none.

    >>> redacted({"hf_token": "abc", "max_tokens": 10, "stores": ["gs://me:pass@bucket"]})
    {'hf_token': '[redacted]', 'max_tokens': 10, 'stores': ['gs://bucket']}
    """
    return _redacted(value, redactor(known))


def _redacted(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {name: _field(name, each, clean) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_redacted(each, clean) for each in value])
    return value


def _field(name: Any, value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(name, str) and isinstance(value, str) and value and is_secret(name):
        return HIDDEN
    return _redacted(value, clean)
