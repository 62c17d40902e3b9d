"""Removes secrets from texts: by the name of a field, by their shape, or listed ones."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

HIDDEN = "[redacted]"

# The end of a name: HF_TOKEN, aws_secret_access_key, apiKey; not max_tokens, tokenizer or monkey.
_NAME = re.compile(
    r"(?:^|[_\-. ]|(?<=[a-z]))"
    r"(?:token|secret|password|passwd|passphrase|credentials?|authorization"
    r"|(?:api|access|private|secret|account)[_\-]?key|(?<=[_\-. ])(?:pass|pwd|dsn))$",
    re.IGNORECASE,
)
# Shapes of secrets, in addition to the rules of detect-secrets: of the hub, AWS, GitHub, OpenAI,
# Google, DigitalOcean, Databricks, Slack, Replicate; a whole JWT; a header; a key.
_SHAPES = (
    r"hf_[A-Za-z0-9]{16,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}",
    r"\bsk-(?=[\w\-]*\d)[\w\-]{20,}",
    r"\bAIza[\w\-]{35}|\bya29\.[\w\-.]{20,}|\bGOCSPX-[\w\-]{20,}",
    r"\bdo[opr]_v1_[0-9a-f]{64}|\bdapi[0-9a-f]{32}\b|\bnpm_[A-Za-z0-9]{36}\b",
    r"\bxox[a-z]-[\w\-]{10,}|\bxapp-[\w\-]{10,}|\br8_[A-Za-z0-9]{30,}",
    r"\beyJ[\w\-]{6,}\.[\w\-]{6,}(?:\.[\w\-]*)?",
    r"(?<=Bearer )(?=\S*\d|\S{20})[\w\-.~+/]{8,}=*",
    r"(?<=Basic )(?=\S*[\d=])[A-Za-z0-9+/]{12,}=*",
    r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----(?s:.*?)(?:-----END [A-Z ]*-----|\Z)",
)
# Detectors whose rules need no context around a secret and match no word of ordinary text.
_DETECTORS = (
    *("aws", "azure_storage_key", "discord", "github_token", "gitlab_token", "mailchimp", "npm"),
    *("openai", "private_key", "pypi_token", "sendgrid", "slack", "square_oauth", "stripe"),
    *("telegram_token", "twilio"),
)
# A password may have slashes, blanks and at-signs in it; a port in its place is none.
_USERINFO = re.compile(
    r"(?<=://)(?:"
    r"[^/\s:\"']*:(?!\d{1,5}(?:[/\s?#]|$))(?=\S)"
    r"(?:(?:(?!://)[^\s\"'])*@(?:[^\s\"'/]* [^\s\"'/]*@)*"
    r"|(?:(?!://)[^\"'\n@]){1,200}@(?:[^\s\"'/]*@)?)"
    r"|[^/\s\"'?#]+@)"
)
_QUERY = re.compile(r"(?<=[?&;])([\w\-.%]+)=([^&;\s\"'<>]+)")
_SIGNED = (
    *("sig", "signature", "x-amz-signature", "x-amz-credential", "x-goog-signature"),
    *("x-goog-credential", "awsaccesskeyid", "googleaccessid", "auth", "pwd", "pass", "jwt"),
)
_SHORTEST = 8  # a known secret that is shorter would tear words apart


def is_secret(name: str) -> bool:
    """Whether the value of a field of this name is a secret.

    >>> [is_secret(name) for name in ("HF_TOKEN", "api_key", "max_tokens", "tokenizer", "key")]
    [True, True, False, False, False]
    >>> [is_secret(name) for name in ("DB_PASS", "MYSQL_PWD", "SENTRY_DSN", "PWD", "OLDPWD")]
    [True, True, True, False, False]
    """
    return _NAME.search(name) is not None


@cache
def _rules() -> str:
    """One pattern of all shapes, with those of the detectors."""
    plugins = [import_module(f"detect_secrets.plugins.{name}") for name in _DETECTORS]
    patterns = [
        pattern
        for plugin in plugins
        for detector in vars(plugin).values()
        if isinstance(detector, type) and detector.__module__ == plugin.__name__
        for pattern in getattr(detector, "denylist", ())
    ]
    return "|".join([*_SHAPES, *dict.fromkeys(map(_scope_pattern, patterns))])


def _scope_pattern(pattern: re.Pattern[str]) -> str:
    """A pattern as a part of a larger one, with its own flags."""
    ignore_case = "i" if pattern.flags & re.IGNORECASE else ""
    if pattern.flags & re.VERBOSE:
        return f"(?{ignore_case}x:{pattern.pattern}\n)"
    return f"(?{ignore_case}:{pattern.pattern})"


def redactor(known_secrets: Collection[str] = ()) -> Callable[[str], str]:
    """A function that removes secrets from a text, and `known_secrets` everywhere."""
    secrets = sorted(
        (text for text in known_secrets if len(text) >= _SHORTEST), key=len, reverse=True
    )
    pattern = _compile_pattern(tuple(secrets))
    return lambda text: pattern.sub(HIDDEN, _QUERY.sub(_hide_credential, _USERINFO.sub("", text)))


@lru_cache(maxsize=8)
def _compile_pattern(secrets: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join([*map(re.escape, secrets), _rules()]))


def _hide_credential(field: re.Match[str]) -> str:
    """A field of a URL's query, without its value if it is a credential."""
    name = field[1]
    is_credential = is_secret(name) or name.lower() in _SIGNED
    return f"{name}={HIDDEN}" if is_credential else field[0]


def holds_secret(value: Any) -> str | None:
    """The dotted name of the first text in a nested value that holds a secret; null: none.

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
    for key, part in parts:
        yield from texts(part, f"{name}.{key}".removeprefix("."))


def redact(value: Any, known_secrets: Collection[str] = ()) -> Any:
    """A nested value without its secrets; a value without secrets stays equal.

    >>> redact({"hf_token": "abc", "max_tokens": 10, "stores": ["gs://me:pass@bucket"]})
    {'hf_token': '[redacted]', 'max_tokens': 10, 'stores': ['gs://bucket']}
    """
    clean = redactor(known_secrets)

    def clean_value(value: Any, name: Any = "") -> Any:
        if isinstance(value, str):
            hides = isinstance(name, str) and value and is_secret(name)
            return HIDDEN if hides else clean(value)
        if isinstance(value, Mapping):
            return {name: clean_value(part, name) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([clean_value(part) for part in value])
        return value

    return clean_value(value)
