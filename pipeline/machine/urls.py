"""URLs of users: malformed ones are refused in one sentence, which never quotes a secret."""

import os
from urllib.parse import SplitResult, urlsplit

from factsweep.operators.errors import InputError
from factsweep.operators.wording.redaction import redactor

# Variables that libraries read later, in the midst of a run; proxies in any case.
_VARIABLES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_ENDPOINT"),
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "RAY_API_SERVER_ADDRESS"),
)


def split_url(url: str, name: str) -> SplitResult:
    """The parts of a URL; `name` says where it stands, and is shown without secrets.

    Raises:
        InputError: its host is malformed.
    """
    try:
        return urlsplit(url, allow_fragments=False)
    except ValueError:  # its message may quote a password
        redacted = redactor()(name)
        raise InputError(
            f"{redacted} is no URL: its host is malformed, such as a [ without its ]; correct it."
        ) from None


def split_address(address: str, name: str) -> SplitResult:
    """The parts of a URL, or of HOST:PORT; a malformed port is refused, too."""
    parts = split_url(address if "://" in address else f"//{address}", name)
    try:
        _ = parts.port
    except ValueError:
        raise InputError(f"{name} has a port that is no number up to 65535; correct it.") from None
    if not address.isprintable() or " " in address:
        raise InputError(f"{name} holds a blank or an invisible character; remove it.")
    return parts


def split_web_address(url: str, name: str) -> SplitResult:
    """The parts of a URL of http:// or https://; all others are refused."""
    parts = split_address(url, name)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{name} is no URL of the web; give one such as https://host/v1.")
    return parts


def check_variables() -> None:
    """Refuse malformed URLs in variables of the environment that libraries read."""
    for name, value in os.environ.items():
        if value and name.upper() in _VARIABLES:
            split_address(value, f"${name}")
