"""What the overrides of a command compose."""

import shutil
import traceback
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from hydra import compose, initialize_config_dir
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import factsweep
from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster import job_request
from factsweep.pipeline.cluster.launchers import LAUNCHERS
from factsweep.pipeline.commands import api
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.compose import choices, compose_config, expand_runs
from factsweep.pipeline.config.literal_overrides import literal, quote, unquote
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.studies import night
from tests.messages import naming
from tests.pipeline.inputs.test_files import FORMATS


def test_a_file_of_facts_is_a_benchmark_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "my facts.csv"
    file.write_text("relation,template,subject,object\n")
    rows = tmp_path / "rows.parquet"
    rows.write_bytes(b"")
    for overrides, name, path in (
        ([f"benchmark={file}"], "my facts", file),
        ([f"benchmark.path={file}"], "my facts", file),
        ([f"benchmark.path='{file}'", "benchmark.name=mine"], "mine", file),
        ([f"benchmark={rows}"], "rows", rows),
        ([f"benchmark.path={rows}"], "myriadlama-mini", rows),
        ([f"benchmark.path={file}", "benchmark=myriadlama"], "myriadlama", file),
    ):
        benchmark = compose_config(overrides)["benchmark"]
        assert (benchmark["name"], benchmark["path"]) == (name, str(path)), overrides


def test_a_plain_table_is_a_benchmark_of_its_name_whatever_its_format(tmp_path: Path) -> None:
    fact = {"relation": "capital", "template": "[X] [Y]", "subject": "Peru", "object": "Lima"}
    for name, written in FORMATS.items():
        path = tmp_path / name
        path.write_bytes(written(pl.DataFrame([fact])))
        for key in ("benchmark", "benchmark.path"):
            config = compose_config([f"{key}={path}"])
            assert config["benchmark"]["name"] == name.partition(".")[0], name
            assert config["prompt"]["shots"] == 0
            assert config["decoding"]["samples"]["n_answers"] == 4


def test_a_file_in_the_layout_of_a_set_is_read_for_the_usual_benchmark(tmp_path: Path) -> None:
    row = pl.DataFrame([{"rel_uri": "P36", "sub_ent": "Peru", "obj_ents": ["Lima"]}])
    for name in ("rows.parquet", "rows.jsonl", "rows.json", "rows.arrow"):
        path = tmp_path / name
        path.write_bytes(next(write for n, write in FORMATS.items() if path.suffix in n)(row))
        assert compose_config([f"benchmark.path={path}"])["benchmark"]["name"] == "myriadlama-mini"


def test_a_file_of_facts_is_sampled_in_proportion_to_the_facts(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("relation,template,subject,object\n")
    for overrides, n_prompts, n_answers in (
        ([], 10_000, 4),
        (["decoding=greedy"], 0, 100),
        (["decoding=default"], 10_000, 100),
    ):
        samples = compose_config([f"benchmark.path={file}", *overrides])["decoding"]["samples"]
        assert (samples["n_prompts"], samples["n_answers"]) == (n_prompts, n_answers), overrides


def test_composed_equals_what_hydra_composes_of_all_at_once(subtests: pytest.Subtests) -> None:
    """Files are composed once for all runs that choose the same, and values set afterwards."""
    for overrides in (
        ["seed=1", "seed=2"],
        ["prompt=zero-shot", "run_name='a b'", "prompt.style=question", "budget=null"],
        ["seed=3", "model=gpt2", "benchmark.relations=[P17,P36]", "max_cost=1.5"],
        ["++model.engine.max_num_seqs=4", "model.revision=abc", "~decoding.stop"],
        ["hydra.run.dir=x", "decoding.samples={n_prompts: 3}", "cluster.launch=null"],
        ["benchmark=kamel-mini", "metrics.n_rounds=7", "decoding.max_tokens=5"],
        ["prompt=1-shot", "benchmark=kamel-mini", "prompt.shots=2"],
        ["benchmark=distractors-mini", "prompt=optimal", "prompt.n=7", "sweep=demo"],
    ):
        with subtests.test(overrides=overrides):
            with initialize_config_dir(str(folders.CONF), version_base="1.3"):
                plain = OmegaConf.to_container(compose("config", overrides=overrides), resolve=True)
            assert compose_config(overrides) == plain
    assert compose_config([])["seed"] == 0


def test_file_of_ones_own_that_changes_is_composed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(folders.VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match="mine"):
        compose_config(["matching=mine"])
    file = tmp_path / "matching" / "mine.yaml"
    file.parent.mkdir()
    for pipeline in ("en_core_web_sm", "a_longer_name"):
        file.write_text(f"defaults: [default]\npipeline: {pipeline}\n")
        assert compose_config(["matching=mine", "seed=1"])["matching"]["pipeline"] == pipeline
    file = tmp_path / "prompt" / "two.yaml"
    file.parent.mkdir()
    for text, shots in (("defaults: [4-template]\nshots: 2\n", 2), ("shots: 3\n", 3)):
        file.write_text(text)
        assert compose_config(["prompt=two", "seed=1"])["prompt"]["shots"] == shots


def test_field_that_is_there_is_not_added_once_more() -> None:
    with pytest.raises(InputError, match=r"\+seed=3"):
        compose_config(["seed=2", "+seed=3"])


SIGNS = st.text("\"'\\$`{}[]()*?!#%=,:;|&<>~@ \t\n\rnaü東0", max_size=20)
TEXTS = SIGNS | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def is_for_hydra(text: str) -> bool:
    """Whether a text has a meaning of its own: it is null, quoted as a whole, or in a home."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return is_quoted or text.strip().lower() == "null" or text.startswith("~/")


@given(text=TEXTS.filter(lambda text: not is_for_hydra(text)))
def test_composed_any_text_is_the_value_of_a_key_of_texts(text: str) -> None:
    config = compose_config([f"answers={text}", f"prompt.system={text}"])
    assert (config["answers"], config["prompt"]["system"]) == (text, text)


@given(text=TEXTS)
def test_written_any_text_by_keyword_is_that_text(text: str) -> None:
    fields = {"run_name": text, "decoding.stop": [text], "model.engine": {"x": text}}
    config = compose_config(api.format_overrides(**fields))
    assert config["run_name"] == config["decoding"]["stop"][0] == config["model"]["engine"]["x"]
    assert config["run_name"] == text


@given(texts=st.lists(TEXTS, min_size=2, max_size=3))
def test_expanded_quoted_texts_are_split_between_them(texts: list[str]) -> None:
    runs = expand_runs([f"run_name={','.join(map(quote, texts))}"])
    assert [compose_config(run.overrides)["run_name"] for run in runs] == texts


def test_composed_values_with_a_grammar_keep_it(subtests: pytest.Subtests) -> None:
    for override, value in (
        ("answers='answers (1).jsonl'", "answers (1).jsonl"),
        ('answers="it\'s, \\"so\\""', 'it\'s, "so"'),
        ("answers=null", None),
        ("run_name=2024", "2024"),
        ("run_name=true", "true"),
        ("results=1e10", "1e10"),
        ("results=~/x", str(Path.home() / "x")),
        ("budget=500", 500),
        ("budget=1%", "1%"),
        ("target=acc_at_1±0.003", "acc_at_1±0.003"),
        ("seed=3", 3),
        ("++control=a=b", "a=b"),
    ):
        with subtests.test(override=override):
            assert compose_config([override])[override.lstrip("+").partition("=")[0]] == value
            assert literal(literal(override)) == literal(override)


def test_composed_numbers_in_a_list_are_refused_with_both_ways_out() -> None:
    with pytest.raises(InputError, match=r"seed=0,1 gives several values.*study.*quotes"):
        compose_config(["seed=0,1"])
    with pytest.raises(InputError, match=r"seed='a\(b'; it must be a valid integer"):
        load(["seed=a(b"])


def test_expanded_texts_in_a_list_keep_their_digits() -> None:
    runs = expand_runs(["model.revision=1.10,1e5,'a, b', main"])
    assert [run.varied["model.revision"] for run in runs] == ["1.10", "1e5", "a, b", "main"]
    revisions = [compose_config(run.overrides)["model"]["revision"] for run in runs]
    assert revisions == ["1.10", "1e5", "a, b", "main"]
    (whole,) = expand_runs(["answers=answers (1), b.jsonl"])  # no list that Hydra reads
    assert compose_config(whole.overrides)["answers"] == "answers (1), b.jsonl"


@pytest.mark.parametrize("name", ["own (2), x=[1].csv", "it's {a} 100% #1.csv", "größe 東?*.csv"])
def test_composed_a_table_of_any_name_is_a_benchmark(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("relation,template,subject,object\n")
    for override in (f"benchmark={name}", f"benchmark.path={name}", f"benchmark={quote(name)}"):
        assert compose_config([override])["benchmark"]["path"] == name
    (tmp_path / "a, (b)").mkdir()
    assert compose_config(["model=a, (b)"])["model"]["id"] == str(tmp_path / "a, (b)")
    assert compose_config(["model=./my.jinja", f"model.chat_template={name}.jinja"])


def test_unquoted_text_without_quotes_stays() -> None:
    for value in ("a", "'a' and 'b'", "'", "a'b'"):
        assert unquote(value) == value


MODEL = folders.CONF / "model/smollm2-135m.yaml"


@pytest.fixture
def hers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder factsweep.d/ where she stands, with a model and a data set of her own."""
    monkeypatch.delenv(folders.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / folders.OWN
    for group in ("model", "benchmark", "data_catalog"):
        (folder / group).mkdir(parents=True)
    (folder / "model/mine.yaml").write_text(
        MODEL.read_text().replace("name: smollm2-135m", "name: mine")
    )
    benchmark = (folders.CONF / "benchmark/myriadlama-mini.yaml").read_text()
    (folder / "benchmark/mine.yaml").write_text(benchmark.replace("myriadlama-mini", "mine"))
    entry = (folders.CATALOG / "myriadlama-mini.yaml").read_text()
    entry = entry.replace("name: myriadlama-mini", "name: mine").replace(
        "mini/myriadlama-mini", "rows"
    )
    (folder / "data_catalog/mine.yaml").write_text(entry)
    shutil.copytree(folders.CATALOG / "mini/myriadlama-mini", folder / "data_catalog/rows")
    return folder


def test_own_folder_is_none_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert folders.own_folder() is None


def test_own_files_extend_and_replace_those_that_ship(hers: Path) -> None:
    run = load(["model=mine", "benchmark=mine"])
    assert (run.model.name, run.benchmark.data) == ("mine", "mine")
    assert {"mine", "smollm2-135m"} <= set(choices("model"))
    assert {"mine", "kamel"} <= set(catalog.list_names())
    (hers / "model/longer.yaml").write_text(
        "defaults: [smollm2-135m, _self_]\nname: longer\nmax_model_len: 300\n"
    )
    model = load(["model=longer"]).model
    assert (model.name, model.max_model_len, model.source) == ("longer", 300, "package")
    (hers / "model/smollm2-135m.yaml").write_text((hers / "model/mine.yaml").read_text())
    assert load([]).model.name == "mine"
    (hers / "nightly").mkdir()
    shipped = folders.CONF / "nightly/demo.yaml"
    (hers / "nightly/hers.yaml").write_text(shipped.read_text())
    assert night.load("hers") == night.load("demo")


def test_own_entry_is_read_where_the_folder_cannot_be_seen(
    hers: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = catalog.entry("mine")
    monkeypatch.chdir(tmp_path_factory.mktemp("worker"))
    assert catalog.read_facts(entry).pairs.equals(
        catalog.read_facts(catalog.entry("myriadlama-mini")).pairs
    )


def test_own_folder_that_is_named_comes_before_the_one_here(
    hers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other folder/model").mkdir(parents=True)
    (tmp_path / "other folder/model/there.yaml").write_text((hers / "model/mine.yaml").read_text())
    monkeypatch.setenv(folders.VARIABLE, "other folder")
    assert load(["model=there"]).model.name == "mine"
    assert "mine" not in choices("model")


def test_own_file_that_is_no_utf8_is_named_with_the_way(hers: Path) -> None:
    (hers / "model/mine.yaml").write_text(MODEL.read_text(), "utf-16")
    with pytest.raises(InputError, match=naming("model/mine.yaml", "iconv -f UTF-16 -t UTF-8")):
        load(["model=mine"])


def test_own_folder_that_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folders.VARIABLE, "/nowhere")
    with pytest.raises(InputError, match=naming("--config-dir", "/nowhere")):
        load([])


def test_own_folder_with_an_unknown_group_is_refused(hers: Path) -> None:
    (hers / "models").mkdir()
    with pytest.raises(InputError, match=naming("models", "group")):
        load([])


def test_own_folder_goes_along_with_a_command_for_shared_nodes(hers: Path) -> None:
    assert job_request.command(["model=mine"]) == f"factsweep run --config-dir {hers} model=mine"


@pytest.mark.parametrize("launcher", ["ray", "kuberay"])
def test_launch_where_the_own_folder_cannot_be_seen_is_refused(hers: Path, launcher: str) -> None:
    overrides = [f"cluster={launcher}", "artifacts=s3://a/b", "results=s3://a/c"]
    with pytest.raises(InputError, match=naming("factsweep.d", "give")):
        LAUNCHERS[launcher].rendered(load(overrides), overrides)


def test_errors_in_python_are_shown_without_the_tracebacks_of_their_causes(tmp_path: Path) -> None:
    for call in (
        partial(factsweep.run, "seed=x"),
        partial(factsweep.plan, "benchmark.relations=[P36"),
        partial(factsweep.load, tmp_path),
    ):
        with pytest.raises(factsweep.InputError) as failure:
            call()
        shown = "".join(traceback.format_exception(failure.value))
        assert shown.count("Traceback") == 1
    assert factsweep.run.__doc__ == api.run.__doc__
