"""Credentials for S3, found as by the AWS command line: in variables, then in files.

obstore reads the variables, and asks the machine if there are none. It reads no files.
"""

import os
from collections.abc import Iterator, Mapping
from configparser import Error, RawConfigParser
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, input_errors

_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
_KEYS = {  # obstore's names by those of a profile
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_BY_BOTO = ("role_arn", "sso_session", "sso_start_url", "credential_process")


def states() -> Iterator[tuple[str, int]]:
    """The files of keys, and when each was changed (0: it cannot be read)."""
    for path in _files():
        try:
            yield str(path), path.stat().st_mtime_ns
        except OSError:
            yield str(path), 0


def build_s3_arguments(
    keys: Mapping[str, str], region: str | None, endpoint: str | None
) -> dict[str, Any]:
    """The arguments of obstore's S3Store; keys, region and endpoint of a URL come first."""
    profile = {} if keys and region and endpoint else _profile()
    region = region or _first_set("AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region")
    endpoint = endpoint or _first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = endpoint or profile.get("endpoint_url")
    config: dict[str, Any] = {"region": region or "us-east-1", **keys}
    if endpoint:
        config["endpoint"] = endpoint
    if keys or _first_set("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        return {"config": config}
    field = next((field for field in _BY_BOTO if field in profile), None)
    if field is None:
        config |= {ours: profile[theirs] for theirs, ours in _KEYS.items() if theirs in profile}
        return {"config": config}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise InputError(
            f"the profile of AWS signs in by {field}, which needs boto3: pip install boto3, or "
            'eval "$(aws configure export-credentials --format env)".'
        ) from error
    return {"config": config, "credential_provider": Boto3CredentialProvider()}


def _first_set(*variables: str) -> str | None:
    return next(filter(None, map(os.environ.get, variables)), None)


def load_certificates() -> dict[str, bytes]:
    """The certificates of $AWS_CA_BUNDLE as an option of obstore's clients."""
    if not (path := os.environ.get("AWS_CA_BUNDLE")):
        return {}
    with input_errors(path, "AWS_CA_BUNDLE names a file of certificates"):
        return {"root_certificate": Path(path).read_bytes()}


def _files() -> Iterator[Path]:
    for name, usual in _FILES.items():
        try:
            yield Path(os.environ.get(name, usual)).expanduser()
        except RuntimeError:  # a user without a home
            continue


def _profile() -> dict[str, str]:
    """The fields of $AWS_PROFILE, or of the default profile, in both files."""
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    name, fields, is_known = profile or "default", dict[str, str](), False
    for path in _files():
        parser = RawConfigParser(strict=False, interpolation=None)
        try:
            parser.read(path, "utf-8")
        except (Error, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read ({error}); correct it.") from error
        for section in (name, f"profile {name}"):
            if parser.has_section(section):
                is_known, fields = True, {**parser[section], **fields}
    if profile and not is_known:
        raise InputError(f"there is no profile {profile} in {' or '.join(map(str, _files()))}.")
    return fields
