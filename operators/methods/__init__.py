"""Methods: everything that one benchmark does its own way, in one module each."""

from collections.abc import Mapping
from types import MappingProxyType

from operators.methods import belief, kamel
from operators.methods.method import Method

METHODS: Mapping[str, Method] = MappingProxyType({"belief": belief.METHOD, "kamel": kamel.METHOD})
