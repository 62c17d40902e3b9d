"""The distractor method: what it makes of preferences, from the matched tables to the page."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.distractors import VERBALISED
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.methods import distractors
from factsweep.operators.methods.distractors import METHOD, Options
from factsweep.operators.methods.method import Evidence, Result
from factsweep.operators.prompts.clozes import Distractors
from factsweep.operators.schemas import conform, empty
from tests.builders import frame
from tests.messages import naming

FACTS = "tuvwxy"
OPTIONS = Options(n_rounds=10, encoder=None, judge_url=None, judge_model=None)


def entity(entity_id: str, logprob: float) -> dict[str, Any]:
    return {"entity_id": entity_id, "label": entity_id.lower(), "logprob": logprob, "n_tokens": 1}


def pair(pair_id: str, labels: list[str]) -> dict[str, Any]:
    objects = [{"object_id": f"{pair_id}.o", "labels": labels}]
    names = {"relation_id": "P36", "subject_id": pair_id, "subjects": ["s", "z"]}
    return {"pair_id": pair_id, "objects": objects, **names}


@pytest.fixture
def facts() -> Facts:
    details = [
        {"pair_id": p, "relation_id": "P36", "human_score": score, "sample": VERBALISED}
        for p, score in zip(FACTS, (1.0, 0.0, 0.5, 1.0, 0.0, 0.5), strict=True)
    ]
    return Facts(
        frame("relations", {"relation_id": "P36", "label": "capital"}),
        frame("templates", {"template_id": "P36.0", "relation_id": "P36", "text": "[X]: [Y]"}),
        frame("pairs", *(pair(p, [f"right {p}", p]) for p in FACTS)),
        {"details": frame("details", *details)},
    )


@pytest.fixture
def answers() -> pl.DataFrame:
    """Two clozes of each fact, with two distractors each: half are known as the other half is."""
    rows = [
        {
            "prompt_id": f"{fact}.0.{cloze}",
            "relation_id": "P36",
            "pair_id": fact,
            "template_id": "P36.0",
            "subject_index": cloze,
            "logprob": right,
            "label": f"right {fact}",
            "n_tokens": 1,
            "open_logprob": right + 0.5,
            "distractors": [entity("A", -2.0), entity("B", -3.0 - cloze)],
        }
        for fact, right in zip(FACTS, (-1.0, -9.0, -2.5) * 2, strict=True)
        for cloze in (0, 1)
    ]
    texts = dict.fromkeys(("relation_id", "pair_id", "template_id"), pl.String)
    schema = {**texts, "subject_index": pl.UInt16, **empty("preferences").schema}
    return pl.DataFrame(rows, schema=schema)


def matched(facts: Facts, answers: pl.DataFrame, beams: pl.DataFrame) -> dict[str, pl.DataFrame]:
    match = METHOD.measure.matcher(facts, "", lambda: None)
    return dict(match(answers, {"beams": beams, "chances": empty("chances")}))


def measured(
    facts: Facts, tables: dict[str, pl.DataFrame], options: Options = OPTIONS
) -> dict[str, pl.DataFrame]:
    evidence = Evidence(
        facts=facts,
        setting=Distractors("optimal"),
        tables=tables,
        n_failed=pl.DataFrame({"relation_id": ["P36"], "n_failed": [1]}),
        n_failed_samples=None,
        repeated_answers=None,
        options=options,
        seed=0,
    )
    return dict(METHOD.measure.compute(evidence))


@pytest.fixture
def found(facts: Facts, answers: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return measured(facts, matched(facts, answers, empty("beams")))


def named(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The measured tables as aggregate publishes them."""
    names = {"model": "m", "benchmark": "b", "setting": "optimal"}
    columns = [pl.lit(value).alias(name) for name, value in names.items()]
    return {
        table: rows.with_columns(
            *columns, variant=pl.col("variant") if "variant" in rows.columns else pl.lit(None)
        )
        for table, rows in tables.items()
    }


def test_tables_are_those_that_the_method_declares(
    facts: Facts, answers: pl.DataFrame, found: dict[str, pl.DataFrame]
) -> None:
    tables = matched(facts, answers, empty("beams"))
    assert set(tables) == set(METHOD.measure.matched)
    assert set(found) == set(METHOD.measure.measured)
    for name, rows in {**tables, **named(found)}.items():
        conform(rows, name)


def test_numbers_are_those_of_the_preferences(found: dict[str, pl.DataFrame]) -> None:
    overall = found["metrics"].filter(pl.col("slice").is_null())
    numbers = {row["metric"]: row["value"] for row in overall.iter_rows(named=True)}
    assert numbers["min_at_1"] == pytest.approx(1 / 3)
    assert numbers["avg_at_2"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert overall["n_failed"].unique().to_list() == [1]
    assert found["curve"].select("sample", "n", "min").rows()[0] == (None, 1, pytest.approx(1 / 3))


def test_measures_of_continuations_have_rows_where_there_are_beams(
    facts: Facts, answers: pl.DataFrame, found: dict[str, pl.DataFrame]
) -> None:
    assert "rouge_l" not in found["metrics"]["metric"]
    beams = frame(
        "beams",
        {"prompt_id": "t.0.0", "texts": [" right t"], "logprobs": [-1.0], "top_tokens": ["t"]},
    )
    tables = matched(facts, answers, beams)
    assert tables["continued"].height == 1
    overall = measured(facts, tables)["metrics"].filter(pl.col("slice").is_null())
    rows = dict(overall.select("metric", "value").iter_rows())
    assert (rows["rouge_l"], rows["precision_at_1"]) == (1.0, 1.0)


def test_encoder_and_judge_read_continuations_where_they_are_named(
    facts: Facts, answers: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[Any] = []

    def judged(prompts: Any) -> list[float]:
        questions.extend(prompts)
        return [1.0] * len(prompts)

    scores = {("right t", " a"): 0.25, ("t", " a"): 0.5}
    monkeypatch.setattr(
        distractors, "BertScore", lambda _model: lambda pairs: [scores[pair] for pair in pairs]
    )
    monkeypatch.setattr(Options, "judge", property(lambda _options: judged))
    beams = frame(
        "beams", {"prompt_id": "t.0.1", "texts": [" a"], "logprobs": [-1.0], "top_tokens": ["a"]}
    )
    readers = Options(10, "some-encoder", "http://localhost/v1", "some-model")
    metrics = measured(facts, matched(facts, answers, beams), readers)["metrics"]
    rows = dict(metrics.filter(pl.col("slice").is_null()).select("metric", "value").iter_rows())
    assert (rows["bertscore"], rows["judge"]) == (0.5, 1.0)
    assert questions == [("z:", ["right t", "t"], " a")]


def test_encoder_and_judge_are_not_asked_without_continuations(
    facts: Facts, answers: pl.DataFrame
) -> None:
    readers = Options(10, "no-encoder", "http://localhost:9/v1", "some-model")
    metrics = measured(facts, matched(facts, answers, empty("beams")), readers)["metrics"]
    assert not {"bertscore", "judge", "rouge_l"} & set(metrics["metric"])


def test_people_and_corrected_sentences_are_compared_where_the_set_has_them(
    facts: Facts, answers: pl.DataFrame, found: dict[str, pl.DataFrame]
) -> None:
    assert found["agreement"].height > 0
    assert found["robustness"]["n"].unique().to_list() == [6]
    no_scores = {"human_score": pl.lit(None, pl.Float64), "sample": pl.lit("balanced")}
    details = facts.extra_tables["details"].with_columns(**no_scores)
    unrated = Facts(facts.relations, facts.templates, facts.pairs, {"details": details})
    tables = measured(unrated, matched(unrated, answers, empty("beams")))
    assert tables["agreement"].is_empty()
    assert tables["robustness"].is_empty()


def test_report_has_the_tables_and_figures_that_there_are_numbers_for(
    facts: Facts, found: dict[str, pl.DataFrame]
) -> None:
    costs = pl.DataFrame(schema=empty("metrics").schema)
    report = METHOD.show.report(Result(facts, named(found), costs))
    assert {"headline", "relations", "tokens", "retrieval", "table-3", "n-clozes"} <= set(
        report.tables
    )
    assert {"retrieval", "n-distractors", "n-clozes"} <= set(report.figures)
    assert "model-size" not in report.figures
    assert set(report.tables) | set(report.figures) <= set(report.titles)


def test_digest_shows_the_hardest_distractors_with_the_answer_among_them(
    facts: Facts, answers: pl.DataFrame
) -> None:
    assert METHOD.show.digest is not None
    tables = matched(facts, answers, empty("beams"))
    digest = METHOD.show.digest(facts, tables["preferred"])
    replies = digest.replies.filter(pair_id="v").select("answer", "note", "right").rows()
    assert replies == [
        ("a", "-2.0 nats", False),
        ("right v", "-2.5 nats", True),
        ("b", "-3.0 nats", False),
    ]
    shares = digest.facts.select("pair_id", "share", "n", "right").rows()
    assert shares[2] == ("v", 0.5, 2, ["right v"])


def test_second_scoring_is_compared_candidate_by_candidate(answers: pl.DataFrame) -> None:
    second_answers = answers.with_columns(pl.col("distractors").list.reverse()).head(2)
    unchanged = METHOD.ask.ability.differ(answers, second_answers)
    assert unchanged.select("value", "n", "n_failed").row(0) == (0.0, 6, 0)
    other = second_answers.with_columns(logprob=pl.col("logprob") + 0.25)
    assert METHOD.ask.ability.differ(answers, other)["value"].item() == 0.25


def test_half_a_judge_is_refused() -> None:
    with pytest.raises(InputError, match=naming("judge_url", "metrics.judge_model")):
        Options(n_rounds=10, encoder=None, judge_url="http://localhost/v1", judge_model=None)
    complete = Options(10, None, "http://localhost/v1", "some-model")
    assert complete.judge is not None
    assert OPTIONS.judge is None
