"""An encoder for all tests that need one."""

from pathlib import Path

import pytest

from tests.tiny_models import save_encoder


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights, without files of sentence-transformers."""
    return save_encoder(tmp_path_factory.mktemp("bert"))
