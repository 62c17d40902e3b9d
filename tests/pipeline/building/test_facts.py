"""build facts: sixty facts in four languages, with every flaw, become sets of the catalog."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest
import yaml

from factsweep.operators.construction.facts import generic_templates
from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.runs.run import measure_run
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan
from factsweep.pipeline.storage.store import Store
from tests.chat_server import completion, serving
from tests.described import check_described
from tests.messages import naming
from tests.pipeline.here import make_here

_WORDS = {
    "en": ("capital", "Country", "City"),
    "de": ("Hauptstadt", "Land", "Städtchen"),
    "ja": ("首都", "国", "市"),
    "ar": ("العاصمة", "بلد", "مدينة"),
}
# Language, subject id, subject, object, date.
_FLAWS = (
    ("en", None, "country 0", "CITY 0", "2025-01-01"),  # a double, but for case
    ("en", None, "Country 1", "Elsewhere", "2025-01-01"),  # a second object
    ("de", None, "Land 0", "Sta\u0308dtchen 0", "2025-01-01"),  # a double, but for Unicode's form
    ("en", None, "Mexico City", "Mexico", "2025-01-01"),  # the subject names it
    ("ja", None, "国 3", None, "2025-01-01"),  # nothing in it
    ("ar", "Q9", "بلد 0", "مدينة 9", None),  # the name of another id, and no date
)
_OBJECTS = ("Paris", "Europe", "French", "1969", "guitars", "a river")  # what the fake engine says


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """54 sound facts and six flaws."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(folders.VARIABLE, raising=False)
    counts = {"en": 14, "de": 14, "ja": 13, "ar": 13}
    sound = [
        (
            each,
            f"{each}-{n}" if each == "ar" else None,
            f"{subject} {n}",
            f"{object_} {n}",
            "2020-01-01",
        )
        for each, (_, subject, object_) in _WORDS.items()
        for n in range(counts[each])
    ]
    names = ["language", "subject_id", "subject", "object", "date"]
    rows = pl.DataFrame([*sound, *_FLAWS], names, orient="row", infer_schema_length=None)
    relation = pl.col("language").replace_strict({k: w[0] for k, w in _WORDS.items()})
    path = tmp_path / "mine.csv"
    rows.with_columns(relation=relation).write_csv(path)
    return path


def test_facts_of_four_languages_with_flaws_are_built_counted_and_built_again(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "facts", str(table), "--licence", "CC0"]) == 0
    printed = capsys.readouterr().out
    for said in (
        "  1 left out: object is empty",
        "  2 left out: a double of an earlier row",
        "  1 left out: the subject names the object",
        "  1 kept: the subject has another object, too; each is right",
        "  1 kept: the subject's name belongs to another id, too",
    ):
        assert said in printed
    assert re.search(r"2 left out: a double of an earlier row \(the first: \S+: .*\)", printed)
    for language, pairs in (("en", 14), ("de", 14), ("ja", 13), ("ar", 14)):
        entry = catalog.entry(f"mine-{language}")
        assert catalog.read_facts(entry).pairs.height == pairs, language
        assert entry.licence == "CC0"
        head = check_described(Path(folders.OWN, "data_catalog", entry.name))
        assert (head["license"], head["language"]) == ("cc0-1.0", [language])
        assert main(["catalog", "verify", f"mine-{language}"]) == 0
    sheet = table.with_suffix(".templates.yaml")
    edited = sheet.read_text().replace("[X], 首都: [Y].", "[X]の首都は[Y]です。")
    edited = edited.replace("首都 ([X]): [Y].", "首都 市 1: [X], [Y]")
    sheet.write_text(edited + "  Hauptstatt:\n  - '[X] hat [Y].'\n")
    capsys.readouterr()
    assert main(["build", "facts", str(table)]) == 0
    printed = capsys.readouterr().out
    assert "1 left out: names the object 市 1" in printed
    assert "1 left out: a template of a relation without a fact" in printed
    texts = catalog.read_facts(catalog.entry("mine-ja")).templates["text"].to_list()
    assert texts == ["[X] – 首都: [Y].", "[X]の首都は[Y]です。"]
    sheet.write_text(edited.replace("Hauptstadt", "Hauptstatt"))
    assert main(["build", "facts", str(table)]) == 2
    assert re.search(naming(sheet, "'Hauptstadt'", "de"), capsys.readouterr().err)


def test_a_set_can_be_moved_with_its_folder(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["build", "facts", str(table)]) == 0
    moved = tmp_path / "moved"
    moved.mkdir()
    Path(folders.OWN).rename(moved / folders.OWN)
    monkeypatch.chdir(moved)
    assert main(["catalog", "verify", "mine-en"]) == 0
    texts = [text.read_text() for text in moved.rglob("*.yaml")]
    assert texts
    assert not [text for text in texts if str(tmp_path) in text]


def test_facts_after_a_date_are_counted(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = ["build", "facts", str(table), "--name", "late", "--after", "2024-06-30"]
    assert main(late) == 0
    printed = capsys.readouterr().out
    assert "54 left out: not after 2024-06-30" in printed
    assert "1 left out: without a date" in printed
    assert main([*late[:-1], "June"]) != 0
    assert "2024-12-31" in capsys.readouterr().err
    # Her "facts" would take the place of the one that it is made of.
    wrong = table.with_name("wrong.csv")
    wrong.write_text("relation,subject,object,popularity\nhome,Ann,Rome,\nhome,Bob,Lima,much\n")
    capsys.readouterr()
    assert main(["build", "facts", str(wrong)]) == 2
    assert "wrong.csv, row 1 (counted from 0): popularity 'much'" in capsys.readouterr().err
    table_of_one = table.with_name("facts.csv")
    table_of_one.write_text("relation,subject,object\ncapital,Peru,Lima\n")
    assert main(["build", "facts", str(table_of_one)]) != 0
    assert "--name" in capsys.readouterr().err


@pytest.fixture
def dated(table: Path) -> Path:
    """Twelve facts of two relations with dates and popularity; objects are what the fake says."""
    rows = [
        (relation, f"{relation} {n}", object_, f"20{20 + n % 2 * 5}-01-01" if n else None, n)
        for relation in ("home", "work")
        for n, object_ in enumerate(_OBJECTS)
    ]
    names = ["relation", "subject", "object", "date", "popularity"]
    path = table.with_name("dated.csv")
    pl.DataFrame(rows, names, orient="row").write_csv(path)
    return path


@pytest.mark.slow
def test_a_set_is_built_reviewed_run_and_told_apart_by_date_and_popularity(
    dated: Path, make_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    build = ["build", "facts", str(dated), "--cutoff", "2024-06-30"]
    assert main(build) == 0
    sheet = dated.with_suffix(".templates.yaml")
    lines = sheet.read_text().splitlines(keepends=True)
    sheet.write_text("".join(line for line in lines if "What is" not in line))
    assert main(build) == 0
    assert "factsweep run benchmark=dated" in capsys.readouterr().out
    fake = [
        "model.source=path",
        "model.name=tiny",
        f"model.id={make_model('tiny')}",
        "decoding.engine=fake",
        "metrics.n_rounds=5",
        "metrics.n_draws=20",
        "cluster.num_cpus=2",
    ]
    plans: list[Plan] = []
    measure_run(load(["benchmark=dated", *fake, "run_name=told"]), _kept(plans))
    (branch,) = plans[0].branches
    metrics = branch.metrics.read_all("metrics").filter(metric="acc_at_1")
    samples = {"until": (2, 4), "after": (1, 3, 5), "undated": (0,)}
    for name, numbers in samples.items():
        day = "" if name == "undated" else " 2024-06-30"
        accuracy = metrics.filter(slice=f"sample={name}{day}")["value"].item()
        assert accuracy == pytest.approx(_accuracy(branch, numbers)), name
    for decile, number in ((0, 0), (8, 5)):
        accuracy = metrics.filter(slice=f"popularity={decile}")["value"].item()
        assert accuracy == pytest.approx(_accuracy(branch, (number,))), decile
    parts = pl.read_csv("results/told/tables/parts.csv")["part"].to_list()
    assert parts[-3:] == ["sample=after 2024-06-30", "sample=undated", "sample=until 2024-06-30"]
    for number in (3, 16):  # tables of the papers, which know no such facts
        assert pl.read_csv(f"results/told/tables/table-{number}.csv")["PLM"].to_list() == ["tiny"]

    (twins,) = build_plan(load(["benchmark=dated-twins", "prompt.n=1", *fake])).branches
    for step in twins.steps[:3]:
        step.run()
    sets = twins.prompts.read_all("candidate_sets").sort("rank")
    for _, rows in sets.group_by("candidates_id"):
        right, twin = rows["entity_id"]
        assert right != twin
        assert {right, twin} <= set(_OBJECTS)


def _accuracy(branch: Branch, numbers: Sequence[int]) -> float:
    """The share of answers that name the object, averaged over the facts of these numbers."""
    answers = branch.answers.read_all("generations").rows_by_key("prompt_id", named=True)
    prompts = branch.prompts.read_all("prompts").select("prompt_id", "pair_id")
    shares = []
    for relation, number in product(("home", "work"), numbers):
        prompt_ids = prompts.filter(pair_id=f"{relation}.{relation} {number}")["prompt_id"]
        texts = [answers[prompt_id][0]["text"].casefold() for prompt_id in prompt_ids]
        shares.append(mean(_OBJECTS[number].casefold() in text for text in texts))
    return mean(shares)


def test_a_build_that_stops_leaves_the_set_before_it(
    dated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["build", "facts", str(dated)]) == 0
    old_facts = catalog.read_facts(catalog.entry("dated"))
    dated.write_text(dated.read_text() + "home,home 9,guitars,2020-01-01,1\n")
    real_put = Store.put
    for stopped_at in range(6):
        puts = iter(range(stopped_at))

        def stop(store: Store, name: str, content: bytes, puts: Iterator[int] = puts) -> None:
            if next(puts, None) is None:
                raise OSError(name)
            real_put(store, name, content)

        monkeypatch.setattr(Store, "put", stop)
        assert main(["build", "facts", str(dated)]) != 0
        facts = catalog.read_facts(catalog.entry("dated"))
        assert facts.pairs.height - old_facts.pairs.height in (0, 1), stopped_at
        assert main(["catalog", "verify", "dated"]) == 0
    monkeypatch.setattr(Store, "put", real_put)
    assert main(["build", "facts", str(dated)]) == 0
    assert catalog.read_facts(catalog.entry("dated")).pairs.height == old_facts.pairs.height + 1


def test_templates_of_a_model_are_reviewed_and_written_into_the_file_that_is_edited(
    dated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts: list[str] = []

    def answer(request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        prompts.append(request["messages"][-1]["content"])
        if "[X]: work 1; [Y]: Europe" in prompts[-1]:
            return 200, completion("I know no work.")
        if "[X]: home 1; [Y]: Europe" in prompts[-1]:
            return 200, completion("1. [X] lives in [Y].\n2. From Paris [X] goes to [Y].\n3. [X]?")
        return 200, completion(f"- Again: {prompts[-1].splitlines()[-1]}")

    with serving(answer) as server:
        model = ["--endpoint", server.url, "--model", "m", "--n", "4", "--rounds", "2"]
        assert main(["build", "facts", str(dated), *model]) == 0
        printed = capsys.readouterr().out
        assert "  work: none of the model's" in printed
        assert "  2 left out: names the object paris" in printed
        sheet = yaml.safe_load(dated.with_suffix(".templates.yaml").read_text())["en"]
        assert sheet["home"] == [
            "[X] lives in [Y].",
            "From Paris [X] goes to [Y].",
            "Again: [X] lives in [Y].",
            "Again: From Paris [X] goes to [Y].",
        ]
        assert (
            sheet["work"]
            == generic_templates(pl.DataFrame({"language": "en", "relation": ["work"]}))["en"][
                "work"
            ]
        )
        assert main(["build", "facts", str(dated), *model]) == 2
        assert ".templates.yaml" in capsys.readouterr().err
        dated.with_suffix(".templates.yaml").unlink()
        n_asked = len(prompts)
        assert main(["build", "facts", str(dated), *model]) == 0
        assert len(prompts) == n_asked  # its answers were kept
        dated.with_suffix(".templates.yaml").unlink()
        assert "fewer than" not in capsys.readouterr().out
        assert main(["build", "facts", str(dated), *model[:4], "--n", "9", "--rounds", "1"]) == 0
        assert "  home: fewer than 9" in capsys.readouterr().out
    assert main(["build", "facts", str(dated), *model[:2]]) == 2


def _kept(plans: list[Plan]) -> Callable[[Plan], None]:
    """Makes a plan in this process, and keeps it."""

    def make(plan: Plan) -> None:
        plans.append(plan)
        make_here(plan)

    return make
