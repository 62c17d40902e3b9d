"""A run that cannot start is refused before Ray starts, and leaves nothing behind."""

from pathlib import Path

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.commands import api
from factsweep.pipeline.runs import run as run_module

_HEAD = "relation,template,subject,object\n"
_ENDS = (
    _HEAD + "P1,The capital of [X] is [Y].,France,Paris\nP1,The capital of [X] is [Y].,Spain,M\n"
)
_OPEN = _HEAD + "P1,The [Y] is the capital of [X] now,France,Paris\n"
_FAKE = ("decoding.engine=fake", "decoding.comparer=fake")
_REFUSED = {
    "no template": (
        "relation,subject,object\nP1,France,Paris\n",
        ["benchmark.max_tokens=5"],
        "column template is missing",
    ),
    "no right answer": (
        _HEAD + "P1,[X] has [Y].,France,!!!\n",
        ["benchmark.max_tokens=5"],
        "no answer can match",
    ),
    "too few facts": (_ENDS, ["prompt=4-template"], "needs 5 pairs to draw from"),
    "no cloze": (_OPEN, ["benchmark=twins"], "no template that ends in"),
    "a small context": (_ENDS, ["model.max_model_len=11"], "leaves room for 1 beside an answer"),
    "a part of too few facts": (_ENDS, ["prompt=4-template", "budget=1%"], "needs 5 pairs"),
    "another GPU": (_ENDS, ["cluster.device=cuda"], "nvidia-smi"),
    "answers without text": (_ENDS, ["answers=answers.jsonl"], "column text must be text"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_refused_run_leaves_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each case is refused without a Ray, an artifact, a lease or a folder of results."""
    table, overrides, message = _REFUSED[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_module.cluster, "start_ray", None)
    Path("own.csv").write_text(table)
    Path("answers.jsonl").write_text('{"prompt_id": "P1.France.000.0"}\n')
    verb = {"a part of too few facts": api.estimate, "answers without text": api.score}.get(case)
    with pytest.raises(InputError, match=message):
        (verb or api.run)(*_FAKE, "benchmark.path=own.csv", *overrides, "artifacts=a", "results=r")
    assert not Path("a").exists()
    assert not Path("r").exists()
