"""The versions of installed libraries that results depend on."""

from importlib import metadata


def versions(*names: str) -> dict[str, str]:
    """The version of each distribution."""
    return {name: metadata.version(name) for name in names}
