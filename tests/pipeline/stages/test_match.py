"""match: which answers are correct, and how sure the model was."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from factsweep.operators.errors import ArtifactHeldError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages import match
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan
from factsweep.pipeline.stages.step import SingleProcess
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import quarantine
from tests.pipeline.here import make_here, without

Settings = Callable[..., Run]


def matched(run: Run) -> Plan:
    """A run that is matched, and not measured."""
    plan = build_plan(run)
    make_here(without(plan, "metrics"))
    return plan


def answered(branch: Branch) -> dict[str, str]:
    """The text that stands for each prompt, looked up one by one."""
    texts = dict(branch.answers.read_all("generations").select("prompt_id", "text").iter_rows())
    prompts = branch.prompts.read_all("prompts").select("prompt_id", "same_as")
    return {prompt: texts[same_as or prompt] for prompt, same_as in prompts.iter_rows()}


def labels(branch: Branch) -> dict[str, list[str]]:
    labels_by_pair = defaultdict(list)
    for pair in branch.facts.read("pairs", "all").iter_rows(named=True):
        for entity in pair["objects"]:
            labels_by_pair[pair["pair_id"]] += [label.lower() for label in entity["labels"]]
    return labels_by_pair


def test_match_every_prompt_has_its_answer_and_verdict(done: Plan) -> None:
    (branch,) = done.branches
    texts, right = answered(branch), labels(branch)
    rows = branch.matched.read_all("answers").select("prompt_id", "pair_id", "correct")
    assert {prompt: correct for prompt, _, correct in rows.iter_rows()} == {
        prompt: any(label in texts[prompt].lower() for label in right[pair])
        for prompt, pair, _ in rows.iter_rows()
    }
    assert rows.height == len(texts) == 72
    assert 0 < rows["correct"].sum() < rows.height


def test_match_identical_prompts_share_the_answer_not_the_verdict(done: Plan) -> None:
    (branch,) = done.branches
    twice = branch.prompts.read_all("prompts").drop_nulls("same_as").select("prompt_id", "same_as")
    answers = branch.matched.read_all("answers").select("prompt_id", "pair_id", "key")
    joined = twice.join(answers, on="prompt_id").join(
        answers, left_on="same_as", right_on="prompt_id"
    )
    assert joined.height == twice.height > 0
    assert (joined["key"] == joined["key_right"]).all()
    assert (joined["pair_id"] != joined["pair_id_right"]).all()


_SAME_AS = {"P2.w": None, "P2.x": None, "P2.y": "P2.x", "P2.z": "P1.x", "P2.v": None}


@given(
    st.permutations([*_SAME_AS]),
    st.permutations([*_SAME_AS]),
    st.sets(st.sampled_from([*_SAME_AS])),
)
@example([*_SAME_AS], [*_SAME_AS], {"P2.y", "P2.z"})  # as we publish them
def test_match_each_prompt_has_its_own_answer_or_that_of_its_text(
    prompts: list[str], answered: list[str], lost: set[str]
) -> None:
    own_texts = {prompt: f"own {prompt}" for prompt in answered if prompt not in lost}
    shards = {"P1.0000": {"P1.x": "Oslo"}, "P2.0000": own_texts, "P3.0000": {"P3.x": "?"}}
    same_as = {prompt: _SAME_AS[prompt] for prompt in prompts}
    rows, read = matched_texts(shards, same_as)
    texts = own_texts | shards["P1.0000"]
    expected = {each: texts.get(each, texts.get(same_as[each] or "")) for each in prompts}
    assert rows == [(each, text) for each, text in expected.items() if text is not None]
    # Nothing of P3, which has none of its texts, nor of P1 where that is not needed.
    assert read == ["P2.0000", *(["P1.0000"] if "P2.z" in lost else [])]


def matched_texts(
    shards: Mapping[str, Mapping[str, str]], same_as: Mapping[str, str | None]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Which answer each prompt of P2 has, and the shards that were read for it."""
    columns = dict.fromkeys(("prompt_id", "same_as"), pl.String)
    prompts = pl.DataFrame(list(same_as.items()), columns, orient="row")
    answers = Given(shards)
    rows = match.answers_of(prompts, answers, "P2", None)  # type: ignore[arg-type]
    return rows.select("prompt_id", "text").rows(), answers.read


class Given:
    """Answers of shards, and the shards that were read."""

    stage = "generations"

    def __init__(self, answers: Mapping[str, Mapping[str, str]]) -> None:
        self._answers, self.read = answers, list[str]()

    def shards(self, _: str) -> list[str]:
        return list(self._answers)

    def each(self, _: str, _columns: object, shards: Sequence[str]) -> list[pl.DataFrame]:
        self.read += shards
        rows = [list(self._answers[part].items()) for part in shards]
        columns = dict.fromkeys(("prompt_id", "text"), pl.String)
        return [pl.DataFrame(part, columns, orient="row") for part in rows]


def test_match_calibration_has_a_row_a_sampled_prompt(done: Plan) -> None:
    (branch,) = done.branches
    ranked = branch.prompts.read_all("ranked").filter(pl.col("calibration_rank") < 8)
    rows = branch.matched.read_all("calibration")
    assert set(rows["prompt_id"]) == set(ranked["prompt_id"])
    assert rows["confidence"].is_between(0, 1).all()


def test_match_smaller_shards_and_no_samples_give_the_same_answers(
    done: Plan, small_settings: Settings
) -> None:
    smaller = ("cluster.rows_per_shard=7", "decoding.samples.n_prompts=0")
    (other,) = matched(small_settings(*smaller)).branches
    assert other.matched.read_all("answers").equals(done.branches[0].matched.read_all("answers"))
    assert other.extra_outputs == ()
    assert other.matched.read_all("calibration").is_empty()


class Noted(SingleProcess):
    """Makes all parts here, and keeps what they were."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, int] = {}

    def __call__(self, work: Callable[[Sequence[str]], None], parts: Mapping[str, int]) -> None:
        self.parts = dict(parts)
        super().__call__(work, parts)


@pytest.mark.parametrize(
    ("stage", "table", "shard", "size"),
    [("matched", "sampled", "P36", 36), ("admitted", "errors", "P36.0001", 16)],
)
def test_run_makes_only_the_parts_that_are_not_published(
    finished: Plan, stage: str, table: str, shard: str, size: int
) -> None:
    (branch,) = finished.branches
    step = branch.step(getattr(branch, stage))
    tables_before = step.artifact.manifest().tables
    for name in (f"{table}/{shard}.parquet", "manifest.json"):
        quarantine(step.artifact, f"{step.artifact.folder}/{name}")
    step.artifact.forget()
    noted = Noted()
    step.run(None, noted)
    assert noted.parts == {shard: size}
    assert step.artifact.manifest().tables == tables_before
    quarantine(step.artifact, f"{step.artifact.folder}/manifest.json")
    nothing = Noted()
    step.run(None, nothing)
    assert nothing.parts == {}


@pytest.mark.parametrize(("target", "function"), [(match, "answers_of"), (Artifact, "write")])
def test_match_error_in_a_relation_ends_it(
    finished: Plan, monkeypatch: pytest.MonkeyPatch, target: object, function: str
) -> None:
    (branch,) = finished.branches
    step = branch.step(branch.matched)
    tables_before = step.artifact.manifest().tables
    for name in ("answers/P30.parquet", "answers/P36.parquet", "manifest.json"):
        quarantine(step.artifact, f"{step.artifact.folder}/{name}")
    step.artifact.forget()
    with monkeypatch.context() as patch:
        patch.setattr(target, function, fails)
        with pytest.raises(ArtifactHeldError):
            step.run()
    assert step.artifact.list_published("answers") == []
    step.run()
    assert step.artifact.manifest().tables == tables_before


def fails(*_: object) -> None:
    raise ArtifactHeldError("another driver has it")
