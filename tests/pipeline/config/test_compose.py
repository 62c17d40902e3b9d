"""What the overrides of a command compose."""

from pathlib import Path

from factsweep.pipeline.config.compose import composed


def test_a_file_of_facts_is_a_benchmark_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "my facts.csv"
    file.write_text("relation,template,subject,object\n")
    rows = tmp_path / "rows.parquet"
    rows.write_bytes(b"")
    for given, name, path in (
        ([f"benchmark={file}"], "my facts", file),
        ([f"benchmark.path={file}"], "my facts", file),
        ([f"benchmark.path='{file}'", "benchmark.name=mine"], "mine", file),
        ([f"benchmark={rows}"], "rows", rows),
        ([f"benchmark.path={rows}"], "myriadlama-mini", rows),
        ([f"benchmark.path={file}", "benchmark=myriadlama"], "myriadlama", file),
    ):
        found = composed(given)["benchmark"]
        assert (found["name"], found["path"]) == (name, str(path)), given


def test_a_file_of_facts_is_sampled_in_proportion_to_the_facts(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("relation,template,subject,object\n")
    for given, n_prompts, n_answers in (
        ([], 10_000, 4),
        (["decoding=greedy"], 0, 100),
        (["decoding=default"], 10_000, 100),
    ):
        found = composed([f"benchmark.path={file}", *given])["decoding"]["samples"]
        assert (found["n_prompts"], found["n_answers"]) == (n_prompts, n_answers), given
