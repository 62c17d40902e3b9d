"""What pyproject.toml cannot say: data as packages, and a README that needs no checkout."""

import re
import tomllib
from pathlib import Path

from setuptools import find_namespace_packages, setup

SHIPPED = ("conf", "data_catalog")
# A link or an image with a relative target; an image may stand in a link.
RELATIVE = re.compile(r"(!?)\[([^\[\]]*)\]\((?![a-z]+:|#)([^()\s]+)\)")


def long_description() -> str:
    """README.md; its relative links lead to the project's Source, or are text without one."""
    here = Path(__file__).parent
    project = tomllib.loads((here / "pyproject.toml").read_text("utf-8"))["project"]
    source = project["urls"].get("Source", "").rstrip("/")

    def link(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        if not source:
            return "" if image else text
        view = "raw" if image else "blob"
        return f"{image}[{text}]({source}/{view}/v{project['version']}/{target})"

    return RELATIVE.sub(link, (here / "README.md").read_text("utf-8"))


setup(
    packages=[
        *find_namespace_packages(include=["factsweep*"]),
        *(f"factsweep.{name}" for name in SHIPPED),
    ],
    package_dir={f"factsweep.{name}": name for name in SHIPPED},
    long_description=long_description(),
    long_description_content_type="text/markdown",
)
