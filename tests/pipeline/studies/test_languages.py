"""A study of one set of facts in two languages, with answers made here: what is known where."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from factsweep.pipeline.cli import main
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import build_plan

CITIES = {"Q220": ("Рим", "Roma"), "Q585": ("Осло", "Oslo"), "Q84": ("Лондон", "Londres")}
# Of each fact its right answer, and what is said of it in Russian and in Spanish.
FACTS = {
    "Q1": ("Q220", "в Рим", "no lo sé"),
    "Q2": ("Q585", "Осло", "En Oslo."),
    "Q3": ("Q84", "Лондон", "Londres"),
    "Q4": ("Q585", "не знаю", "Oslo"),
    "Q5": ("Q585", "Рим", "Roma"),  # wrong alike
    "Q6": ("Q84", "Рим", "Oslo"),
}
SPOKEN = ("ru", "es")


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """X-FACTR's files of these facts, and the answers; returns the overrides of both runs."""
    lines = [
        {"sub_uri": fact, "sub_label": fact, "obj_uri": said[0], "obj_label": CITIES[said[0]][0]}
        for fact, said in FACTS.items()
    ]
    files = {
        "facts/P19.jsonl": "".join(f"{json.dumps(line)}\n" for line in lines),
        "languages/templates.csv": "pid,relation,ru,es\nP19,place,[X] из [Y] .,[X] es de [Y] .\n",
        "languages/gender.tsv": "",
    }
    for n, language in enumerate(SPOKEN):
        names = {city: names[n] for city, names in CITIES.items()}
        rows = "".join(
            f"{each}\t{name}\n" for each, name in (names | {f: f for f in FACTS}).items()
        )
        files |= {f"languages/{kind}.{language}.tsv": rows for kind in ("labels", "aliases")}
    for name, text in files.items():
        path = tmp_path / "xfactr" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    overrides = [
        *("benchmark=xfactr", f"benchmark.path={tmp_path}/xfactr", "metrics.n_draws=2"),
        *("metrics.n_rounds=20", f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"),
    ]
    for n, language in enumerate(SPOKEN):
        (branch,) = build_plan(load([*overrides, f"benchmark.language={language}"])).branches
        branch.step(branch.facts).run()
        branch.step(branch.prompts).run()
        prompts = branch.prompts.read_all("prompts").select("prompt_id", "pair_id")
        said = {f"P19.{fact}": each[1 + n] for fact, each in FACTS.items()}
        text = pl.col("pair_id").cast(pl.String).replace_strict(said)
        prompts.select("prompt_id", text=text).write_parquet(tmp_path / f"{language}.parquet")
    return [*overrides, f"answers='{tmp_path}/${{benchmark.language}}.parquet'"]


@pytest.mark.slow
def test_study_along_languages_tells_what_both_know_and_one_alone(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["study", "tongues", *asked, "benchmark.language=ru,es", "--axis=language"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\| ru +\| es +\| 6 +\| 3 +\| 2 +\| \.6667", printed), printed
    out = tmp_path / "results/tongues/report"
    (path,) = out.glob("languages-*.parquet")
    rows = pl.read_parquet(path).select("language", "other", "n_known", "n_shared", "consist")
    assert rows.rows() == [("ru", "es", 3, 2, 0.5), ("es", "ru", 3, 2, 0.5)]
    (alone_path,) = (out / "tables").glob("known-alone-*.csv")
    rows_alone = pl.read_csv(alone_path).rows()
    assert rows_alone == [("es", "P19", "Q4", "Oslo"), ("ru", "P19", "Q1", "Рим")]
    assert list((out / "figures").glob("languages-*.svg"))
    assert "Known in one language alone" in (out / "xfactr/index.html").read_text()
