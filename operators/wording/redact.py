"""Secrets out of what is written: by the name of a field, by their shape, or known beforehand."""

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

HIDDEN = "[redacted]"

# The end of a name: HF_TOKEN, aws_secret_access_key, apiKey; not max_tokens, tokenizer or monkey.
_NAME = re.compile(
    r"(?:^|[_\-. ]|(?<=[a-z]))"
    r"(?:token|secret|password|passwd|passphrase|credentials?|authorization"
    r"|(?:api|access|private|secret|account)[_\-]?key|(?<=[_\-. ])(?:pass|pwd|dsn))$",
    re.IGNORECASE,
)
# What tells a secret by itself, beside the rules of detect-secrets: of the hub, of AWS, GitHub,
# OpenAI and its like, Google, DigitalOcean, Databricks, Slack, Replicate; a whole JWT; a header;
# a key.
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
# Detectors whose rules need nothing around a secret, and take no word of a text for one.
_DETECTORS = (
    *("aws", "azure_storage_key", "discord", "github_token", "gitlab_token", "mailchimp", "npm"),
    *("openai", "private_key", "pypi_token", "sendgrid", "slack", "square_oauth", "stripe"),
    *("telegram_token", "twilio"),
)
# A password may have slashes, blanks and at-signs in it; what has a port in its place is none.
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
    """Whether what stands under this name is a secret.

    >>> [is_secret(each) for each in ("HF_TOKEN", "api_key", "max_tokens", "tokenizer", "key")]
    [True, True, False, False, False]
    >>> [is_secret(each) for each in ("DB_PASS", "MYSQL_PWD", "SENTRY_DSN", "PWD", "OLDPWD")]
    [True, True, True, False, False]
    """
    return _NAME.search(name) is not None


class _Later(ModuleType):
    """Stands for a module until something of it is used: importing `requests` takes 60 ms.

    `importlib.util.LazyLoader` would import it at the second `import` already.
    """

    def __getattr__(self, name: str) -> Any:
        self.leave()
        return getattr(import_module(self.__name__), name)

    def leave(self) -> None:
        """Make room for the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@cache
def _rules() -> str:
    """One pattern of all shapes, those of the detectors too."""
    requests = _Later("requests")  # with which detectors ask servers, and we never do
    sys.modules.setdefault("requests", requests)
    try:
        plugins = [import_module(f"detect_secrets.plugins.{name}") for name in _DETECTORS]
    finally:
        requests.leave()
    rules = [
        rule
        for plugin in plugins
        for kind in vars(plugin).values()
        if isinstance(kind, type) and kind.__module__ == plugin.__name__
        for rule in getattr(kind, "denylist", ())
    ]
    return "|".join([*_SHAPES, *dict.fromkeys(map(_scoped, rules))])


def _scoped(rule: re.Pattern[str]) -> str:
    """A pattern as a part of another, with the flags that it has."""
    flags = ("i" if rule.flags & re.IGNORECASE else "") + ("x" if rule.flags & re.VERBOSE else "")
    return f"(?{flags}:{rule.pattern}\n)" if "x" in flags else f"(?{flags}:{rule.pattern})"


def redactor(known: Collection[str] = ()) -> Callable[[str], str]:
    """What takes the secrets out of a text; `known` ones are taken out wherever they stand."""
    told = sorted((each for each in known if len(each) >= _SHORTEST), key=len, reverse=True)
    hidden = _compiled(tuple(told))
    return lambda text: hidden.sub(HIDDEN, _QUERY.sub(_signed, _USERINFO.sub("", text)))


@lru_cache(maxsize=8)
def _compiled(told: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join([*map(re.escape, told), _rules()]))


def _signed(found: re.Match[str]) -> str:
    """A field of a URL's query, without its value if that opens what the URL names."""
    name = found[1]
    secret = is_secret(name) or name.lower() in _SIGNED
    return f"{name}={HIDDEN}" if secret else found[0]


def holds_secret(value: Any) -> str | None:
    """The dotted name of the first text in a nested value that tells a secret; null: none does.

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

    >>> redacted({"hf_token": "abc", "max_tokens": 10, "stores": ["gs://me:pass@bucket"]})
    {'hf_token': '[redacted]', 'max_tokens': 10, 'stores': ['gs://bucket']}
    """
    return _redacted(value, redactor(known))


def _redacted(value: Any, clean: Callable[[str], str], name: Any = "") -> Any:
    if isinstance(value, str):
        hides = isinstance(name, str) and value and is_secret(name)
        return HIDDEN if hides else clean(value)
    if isinstance(value, Mapping):
        return {name: _redacted(each, clean, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_redacted(each, clean) for each in value])
    return value
