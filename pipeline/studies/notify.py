"""Tell a web address about a night: one POST with JSON, as chat systems take it ("text")."""

import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from factsweep.operators.errors import FactsweepError, InputError, StoppedError, reason
from factsweep.operators.wording.redact import redacted
from factsweep.pipeline.machine import secrets
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.studies.night import Night

VARIABLE = "FACTSWEEP_NOTIFY_URL"
_TIMEOUT_S = 10.0
_RETRIES = 2
_OF_SETTING = ("run", "setting", "outcome", "reason", "tables", "estimate")


def check(url: str) -> None:
    """Refuse what is no address of the web, without a word of it: it may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            f"--notify or ${VARIABLE} must be an address: https://chat.example.org/hooks/…"
        )


def verdict(found: Night) -> dict[str, Any]:
    """What is said of a night that ended with a verdict."""
    reasons = " ".join(f"{each.run}, {each.setting}: {each.reason}" for each in found.settings)
    settings = [
        {
            **{name: getattr(each, name) for name in _OF_SETTING},
            "lost": len(each.lost),
            "gained": each.n_gained,
        }
        for each in found.settings
    ]
    return {
        **_said(found.name, found.outcome, found.exit_code, reasons),
        "verdict": f"{found.results}/{found.name}/verdict.json",
        "settings": settings,
    }


def failure(name: str, error: BaseException) -> dict[str, Any]:
    """What is said of a night that has no verdict."""
    why = str(error) if isinstance(error, FactsweepError) else reason(error)
    code = 1
    if isinstance(error, KeyboardInterrupt):
        code = StoppedError.exit_code
    elif isinstance(error, FactsweepError | OSError):
        code = getattr(error, "exit_code", InputError.exit_code)
    return _said(name, "failed", code, why)


def _said(name: str, outcome: str, code: int, why: str) -> dict[str, Any]:
    return {
        "text": f"{name}: {outcome} (exit code {code}). {why}",
        "night": name,
        "outcome": outcome,
        "exit_code": code,
        "host": socket.gethostname(),
    }


def post(url: str, content: Mapping[str, Any]) -> None:
    """Send it, without secrets; an address that does not take it changes nothing but the log."""
    try:
        with httpx.Client(
            transport=httpx.HTTPTransport(retries=_RETRIES), timeout=_TIMEOUT_S
        ) as client:
            client.post(url, json=redacted(content, secrets.known())).raise_for_status()
    except httpx.HTTPStatusError as error:
        LOG.warning("%s answered %s.", _unsent(url), error.response.status_code)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        LOG.warning("%s cannot be reached (%s).", _unsent(url), type(error).__name__)


def _unsent(url: str) -> str:
    return f"the verdict was not sent: {urlsplit(url).hostname}"
