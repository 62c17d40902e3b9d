"""report --profile: planted states of facts give exactly the planted counts."""

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Completion, Scored, Thought
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.results import report
from factsweep.pipeline.results.profile import report_profile
from factsweep.pipeline.stages.plan import build_plan
from tests.builders import refused
from tests.messages import naming
from tests.pipeline.here import make_here

# How many facts of a kind are planted; the engine answers right where the kind says so.
PLANTED = {
    "recalled": 4,
    "with samples": 3,
    "with demonstrations": 2,
    "with a thought": 2,
    "in reverse": 1,
    "ranked": 3,
    "at times": 2,
    "never": 3,
}
KIND_BY_NUMBER = [kind for kind, n in PLANTED.items() for _ in range(n)]
TEMPLATES = ["[X] lies in [Y].", "[X] is a part of [Y].", "[X] has [Y]."]
RUNS = ("direct", "shown", "thought", "turned", "bear")


class Planted(FakeEngine):
    """Answers right where the kind of the fact, the way of asking and the wording say so."""

    def __init__(self, decode: Callable[[Any], str]) -> None:
        super().__init__()
        self._decode = decode

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        for request in requests:
            text, n = self._decode(request.token_ids), request.sampling.n
            asked = text.rpartition("\nQ: ")[2]
            number, is_turned = int(asked.partition("bj")[2][:2]), "Obj" in asked
            kind, thinks = KIND_BY_NUMBER[number], request.thinking is not None
            ways = {
                "recalled": not is_turned,
                "with samples": n > 1 and not is_turned,
                "with demonstrations": text.count("\nQ: ") > 1,
                "with a thought": thinks,
                "in reverse": is_turned,
                "at times": "lies in" in asked and not is_turned,
            }
            n_right = min(n, 2 if kind == "with samples" else 1 if kind == "at times" else n)
            n_right = n_right if ways.get(kind) else 0
            texts = [f"{'Subj' if is_turned else 'Obj'}{number:02}"] * n_right
            texts = sorted([*texts, *["wrong"] * (n - n_right)], reverse=number % 2 == 0)
            thought = Thought("hm", 1, "itself") if thinks else None
            completions = tuple(Completion(t, 1, -1.0, "stop", thought) for t in texts)
            yield Answer(request.request_id, completions, len(request.token_ids), 0)

    def scores(self, requests: Iterable[Any]) -> Iterator[Any]:
        for request in requests:
            subject, label = re.findall(r"bj(\d\d)", self._decode(request.token_ids))
            prefers_right = KIND_BY_NUMBER[int(subject)] in ("ranked", "recalled")
            logprob = -1.0 if (subject == label) == prefers_right else -2.0
            n_tokens = len(request.token_ids) - 1
            yield Scored.of(request, [logprob / n_tokens] * n_tokens, n_cached_tokens=0)


def write_table(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    lines = [f"P1,{text},{subject},{label}" for subject, label in rows for text in TEMPLATES]
    path.write_text("\n".join(["relation,template,subject,object", *lines]))


@pytest.fixture(scope="module")
def results(
    make_model: Callable[[str], Path], plain: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Runs of one model on the planted facts: each of RUNS, and a twin of the first."""
    folder = tmp_path_factory.mktemp("planted")
    names = [(f"Subj{n:02}", f"Obj{n:02}") for n in range(len(KIND_BY_NUMBER))]
    write_table(folder / "facts.csv", names)
    write_table(folder / "turned.csv", [(label, subject) for subject, label in names])
    write_table(folder / "others.csv", [("Subj00", "Obj09"), ("Subj01", "Obj08")])
    (folder / "bear").mkdir()
    space = {"templates": TEMPLATES, "answer_space_labels": [label for _, label in names]}
    (folder / "bear" / "metadata_relations.json").write_text(json.dumps({"P1": space}))
    # The last fact is in no answer space.
    rows = [
        {"sub_id": None, "sub_label": s, "answer_idx": n} for n, (s, _) in enumerate(names[:-1])
    ]
    (folder / "bear" / "P1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    model, twin = make_model("tiny"), make_model("twin")
    (folder / "chat.jinja").write_text("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    chat = [f"model.chat_template={folder}/chat.jinja", "prompt.as=chat"]
    facts = f"benchmark.path={folder}/facts.csv"
    overrides_by_run = {
        "direct": [facts, "prompt=zero-shot"],
        "shown": [facts, "prompt=4-random", "prompt.shots=2"],
        "thought": [facts, "prompt=zero-shot", *chat, "model.thinking=on"],
        "turned": [f"benchmark.path={folder}/turned.csv", "prompt=zero-shot"],
        "bear": ["benchmark=bear", f"benchmark.path={folder}/bear"],
        "twin": [facts, "prompt=zero-shot", f"model.id={twin}", "model.name=twin"],
        "others": [f"benchmark.path={folder}/others.csv", "prompt=zero-shot"],
    }
    for name, overrides in overrides_by_run.items():
        _run(load([*_common(folder, model), f"run_name={name}", *overrides]))
    return folder / "results"


def _common(folder: Path, model: Path) -> list[str]:
    sizes = ("metrics.n_rounds=20", "model.max_model_len=2000", "decoding.engine=fake")
    places = (f"artifacts={folder}/artifacts", f"results={folder}/results")
    return ["model.source=path", "model.name=tiny", f"model.id={model}", *sizes, *places]


def _run(run: Run) -> None:
    plan = build_plan(run)
    make_here(plan, Planted(tokenizer(plan.weights).decode))
    report.write(plan, {"total": 0})


def counts(results: Path, out: Path, *groups: list[str]) -> tuple[dict[str, dict[str, int]], str]:
    """The facts of each kind by profile, and what is printed."""
    printed = "\n".join(report_profile(groups, str(results), str(out)))
    rows = pl.read_parquet(out / "counts.parquet")
    profiles = rows["profile"].unique(maintain_order=True)
    return {
        name: dict(rows.filter(profile=name).select("kind", "n_facts").iter_rows())
        for name in profiles
    }, printed


def test_profile_of_planted_states_has_the_planted_counts(results: Path, tmp_path: Path) -> None:
    by_profile, printed = counts(results, tmp_path, list(RUNS))
    # The last fact, which is never right, is not in the set of the answer spaces.
    left_out = {"not sampled": 0, "not in every run": 1}
    assert by_profile["all runs"] == PLANTED | left_out | {"never": PLANTED["never"] - 1}
    assert by_profile["bear"]["ranked"] == PLANTED["ranked"] + PLANTED["recalled"]
    n_direct = PLANTED["recalled"] + PLANTED["with samples"] + PLANTED["at times"]
    assert by_profile["direct"]["never"] == sum(PLANTED.values()) - n_direct
    assert "1 fact is not in every run" in printed
    moves = pl.read_csv(tmp_path / "tables" / "transitions-1.csv")
    to_shown = dict(moves.filter(before="never").unpivot().iter_rows())
    assert int(to_shown["with demonstrations"]) == PLANTED["with demonstrations"]
    reordered, _ = counts(results, tmp_path, ["direct", *RUNS[:0:-1]])
    assert next(iter(reordered.values())) == by_profile["all runs"]


def test_profile_has_the_facts_of_each_kind_on_its_page(results: Path, tmp_path: Path) -> None:
    counts(results, tmp_path, ["direct", "bear"])
    page = (tmp_path / "index.html").read_text()
    assert "<option>with samples</option>" in page
    payload = re.search(r'id="payload">([^<]+)<', page)
    assert payload is not None
    facts = json.loads(gzip.decompress(base64.b64decode(payload[1])))["facts"]
    kind_by_subject = {subjects[0]: kind for _, subjects, *_, kind in facts}
    assert kind_by_subject["Subj04"] == "with samples"
    assert Counter(kind_by_subject.values())["ranked"] == PLANTED["ranked"]


def test_profiles_of_two_models_are_compared(results: Path, tmp_path: Path) -> None:
    by_profile, _ = counts(results, tmp_path, ["direct"], ["twin"])
    assert by_profile["direct"] == by_profile["twin"]
    moves = pl.read_csv(tmp_path / "tables" / "transitions-1.csv")
    assert moves.filter(before="recalled")["recalled"].item() == PLANTED["recalled"]
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"kinds.png", "kinds.svg"}


def test_profile_command_prints_the_kinds_and_takes_overrides_behind_its_runs(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = f"--out={tmp_path}/profile"
    assert main(["report", "--profile", "direct", "shown", f"results={results}", out]) == 0
    assert "| direct" in capsys.readouterr().out
    assert (tmp_path / "profile" / "index.html").exists()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["direct", "twin"], ("direct", "twin", "two models", "id:", "--profile")),
        (["direct", "others"], ("direct", "others", "no fact in common", "2 facts")),
        (["direct", "direct"], ("direct", "twice")),
        (["direct", "nothing"], ("no run nothing",)),
        (["direct", "smallest=1"], ("cannot take smallest=",)),
        (["direct:zero-shot", "direct:4-shot"], ("no setting 4-shot",)),
    ],
)
def test_profile_of_runs_that_cannot_be_joined_is_refused(
    results: Path, capsys: pytest.CaptureFixture[str], words: list[str], names: tuple[str, ...]
) -> None:
    message = refused(capsys, "report", "--profile", *words, f"results={results}")
    assert re.search(naming(*names), message)
