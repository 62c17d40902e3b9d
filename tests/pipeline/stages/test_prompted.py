"""A model as a callable: what it is asked, and that the same prompt gets other answers."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request
from factsweep.operators.errors import InputError
from factsweep.pipeline.decoding import engine
from factsweep.pipeline.decoding.engine import prompted
from tests.messages import naming


class _Told(FakeEngine):
    """Keeps what it is asked."""

    def __init__(self, asked: list[Request]) -> None:
        super().__init__()
        self._asked = asked

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        return super().answers(each for each in requests if self._asked.append(each) is None)


def test_model_that_is_prompted_is_loaded_once_and_answers_anew(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    asked: list[Request] = []
    loads: list[object] = []
    monkeypatch.setattr(engine, "load", lambda *given: loads.append(given) or _Told(asked))
    ask = prompted("smollm2-135m")
    assert not loads
    texts = [ask("Write a sentence.") for _ in range(8)]
    assert len(loads) == 1
    assert len(set(texts)) > 1
    again = prompted("smollm2-135m")
    assert [again("Write a sentence.") for _ in range(8)] == texts
    assert tokenizer.decode(asked[0].token_ids).endswith(
        "<|im_start|>user\nWrite a sentence.<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(InputError, match=naming("nosuch", "conf/model/")):
        prompted("nosuch")
