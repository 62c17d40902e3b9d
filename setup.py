"""What pyproject.toml cannot say: conf/ and data_catalog/ are data of the package factsweep."""

from setuptools import find_namespace_packages, setup

SHIPPED = ("conf", "data_catalog")

setup(
    packages=[
        *find_namespace_packages(include=["factsweep*"]),
        *(f"factsweep.{name}" for name in SHIPPED),
    ],
    package_dir={f"factsweep.{name}": name for name in SHIPPED},
)
