"""report --profile: by which of several runs each fact is found, joined from runs of one model.

results/profile/tables/         kinds, transitions, the runs, with facts that some run lacks
               figures/kinds    stacked bars
               profile.parquet  the kind of each fact; counts.parquet the numbers behind the bars
               index.html       the same, with the facts of each kind
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import PREFER, SCORE, Report
from factsweep.operators.metrics.belief.knowledge_state import state_moves
from factsweep.operators.metrics.comparing import profile as profiles
from factsweep.operators.metrics.comparing.profile import RECALLED, SAYS, RunEvidence, Way
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.tables import profile as tables
from factsweep.operators.tables.comparison import moves_table
from factsweep.operators.tables.formats import markdown
from factsweep.operators.wording import count
from factsweep.pipeline.results import compare, past_runs
from factsweep.pipeline.results.pages import profile_page
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.storage.artifact import differences
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import write_report

_MODEL = ("source", "id", "revision", "gguf_file", "adapter", "endpoint")  # whose weights answer
ALL = "all runs"


@dataclass(frozen=True)
class ProfiledRun:
    """A setting of a run, its pairs by the first run's facts (`joined`), and its evidence."""

    label: str
    branch: PastBranch
    joined: pl.DataFrame  # pair_id, fact
    n_pairs: int
    knowledge: RunEvidence

    def row(self) -> dict[str, str | int]:
        """Its line in the table `runs`."""
        metrics, evidence = self.branch.metrics.read_all("metrics"), self.knowledge.evidence
        n, failed = past_runs.count_answered(metrics, self.branch.benchmark_method)
        return {
            "run": self.label,
            "benchmark": self.branch.benchmark,
            "asks": self.knowledge.way,
            "facts": evidence.height,
            "samples of each": evidence.select(pl.max("n_samples").fill_null(0)).item(),
            "not in the first run": self.n_pairs - self.joined.height,
            "without an answer": self.joined["fact"].n_unique() - evidence.height,
            "prompts": n,
            "failed": failed,
        }


@single_threaded_blas()
def report_profile(groups: Sequence[Sequence[str]], results: str, out: str) -> Iterator[str]:
    """Write the profile of each group of runs, named as RUN or RUN:SETTING; yields lines to print.

    The facts are those of the first run. Several groups are compared with one another, the runs of
    a single one among themselves.

    Raises:
        InputError: no such run, runs of two models in a group, or without a fact in common.
    """
    branches = [_load_branches(names, results) for names in groups]
    first = next(iter(branches[0].values()))
    first_pairs = _list_asked_pairs(first)
    groups_of_runs = [
        [_read_run(*item, first, first_pairs) for item in group.items()] for group in branches
    ]
    runs = [run for group in groups_of_runs for run in group]
    evidence_by_name = {
        ALL if len(groups) == 1 else " + ".join(run.label for run in group): [
            run.knowledge for run in group
        ]
        for group in groups_of_runs
    }
    joined = list(evidence_by_name)
    if len(groups) == 1 < len(runs):
        evidence_by_name |= {run.label: [run.knowledge] for run in runs}
    options = compare.settings({})
    kinds_by_name, counts_by_name = {}, {}
    for name, run_evidence in evidence_by_name.items():
        kinds = profiles.profile_facts(
            first_pairs, run_evidence, min_right_samples=options.min_right_samples
        )
        kinds_by_name[name], shown = kinds, profiles.shown_kinds(run_evidence)
        counts_by_name[name] = profiles.count_kinds(kinds, shown, n_rounds=options.n_rounds)
    notes = [note for name in joined for note in _note_limits(name, counts_by_name[name])]
    compared = joined if len(groups) > 1 else [run.label for run in runs]
    report = _build_report(kinds_by_name, counts_by_name, runs, compared)
    # All profiles have the facts in the order of `first_pairs`.
    kind_texts = [kinds_by_name[name]["kind"].cast(pl.String).alias(name) for name in joined]
    kind = pl.select(pl.concat_str(kind_texts, separator=" → ")).to_series()
    facts = replace(first.facts, pairs=first_pairs.with_columns(kind=kind))
    answers = {run.label: (run.branch, run.joined) for run in runs}
    store = Store(out)
    write_report(store, report)
    store.put("index.html", profile_page(facts, answers, report, notes))
    yield from (markdown(report.tables[name]) for name in ("kinds", "runs"))
    yield from notes
    yield f"page, tables, transitions and figure: {store.where('index.html')}"


def _load_branches(names: Sequence[str], results: str) -> dict[str, PastBranch]:
    """The settings of a group's runs, by label."""
    branches = dict[str, PastBranch]()
    for name in names:
        by_title = compare.setting_of(name, results)
        for title, branch in by_title.items():
            label = (
                branch.run if len(by_title) == 1 and ":" not in name else f"{branch.run}:{title}"
            )
            if any(branch.metrics.folder == other.metrics.folder for other in branches.values()):
                raise InputError(
                    f"--profile has {label} twice, or another run of it; give it once."
                )
            branches[label] = branch
    (first_label, first), *others = branches.items()
    for label, branch in others:
        if lines := list(differences(_identify_answerer(first), _identify_answerer(branch))):
            raise InputError(
                f"{first_label} and {label} are of two models ({'; '.join(lines)}); a profile "
                "joins runs of one: give each model a --profile of its own."
            )
    return branches


def _identify_answerer(branch: PastBranch) -> dict[str, object]:
    model = branch.record["run"]["model"]
    if branch.answered_by == "another system":
        return {"answers of": model["name"]}
    is_fake = branch.record["run"]["decoding"]["engine"] == "fake"
    return {**{name: model.get(name) for name in _MODEL}, "made up": is_fake}


def _way_of_asking(branch: PastBranch, *, is_reverse: bool) -> Way:
    """How a run asks; of several that apply, the last of WAYS but for `ranked`."""
    if branch.benchmark_method.ask.ability in (SCORE, PREFER):
        return "ranked"
    if is_reverse:
        return "in reverse"
    thinks = branch.record["run"]["model"].get("thinking")
    if thinks or any(branch.answers.rows("thoughts").values()):  # a server may think unasked
        return "with a thought"
    shots = branch.artifacts["prompts"].recipe.fields["setting"].get("shots")
    return "with demonstrations" if shots else RECALLED


def _list_asked_pairs(branch: PastBranch) -> pl.DataFrame:
    """The pairs that a run asks about (columns of the canonical table)."""
    prompts = pl.concat(branch.artifacts["prompts"].each("ranked", ["pair_id"]))
    return branch.facts.pairs.join(prompts, on="pair_id", how="semi", maintain_order="left")


def _read_run(
    label: str, branch: PastBranch, first: PastBranch, first_pairs: pl.DataFrame
) -> ProfiledRun:
    """A run's evidence on the facts that the first run asks about (`first_pairs`)."""
    pairs = _list_asked_pairs(branch)
    joined, is_reverse = profiles.join_facts(first_pairs, pairs)
    if joined.is_empty():
        left, right = (
            f"{run.run} asks {count(rows.height, 'fact')} of "
            f"{', '.join(rows['relation_id'].unique().sort().head(5))}"
            for run, rows in ((first, first_pairs), (branch, pairs))
        )
        raise InputError(
            f"{first.run} and {branch.run} have no fact in common: {left}, and {right}; a profile "
            "joins facts by relation id, subject and right answer."
        )
    facts = branch.facts
    rows = [branch.evidence(branch.read_matched(name), facts) for name in branch.relations]
    evidence = profiles.as_facts(pl.concat(rows), joined)
    knowledge = RunEvidence(_way_of_asking(branch, is_reverse=is_reverse), evidence)
    return ProfiledRun(label, branch, joined, pairs.height, knowledge)


def _build_report(
    kinds_by_name: Mapping[str, pl.DataFrame],
    counts_by_name: Mapping[str, pl.DataFrame],
    runs: Sequence[ProfiledRun],
    compared: Sequence[str],
) -> Report:
    """The report, with the transitions from each of the profiles `compared` to the next."""
    report_tables = {
        "kinds": tables.kinds_table(counts_by_name),
        "runs": pl.DataFrame([run.row() for run in runs]),
    }
    titles = {"kinds": "Facts by kind", "runs": "The runs, and the facts that they lack"}
    for number, (old, new) in enumerate(pairwise(compared), 1):
        moves = kinds_by_name[old].join(kinds_by_name[new], on=["relation_id", "pair_id"])
        changes = moves.select("relation_id", before="kind", after="kind_right")
        states = [kind for kind in SAYS if kind in {*changes["before"], *changes["after"]}]
        name = f"transitions-{number}"
        report_tables[name] = moves_table(state_moves(changes), states=states)
        titles[name] = f"Transitions: {old} (rows) → {new} (columns)"
    raw = {
        name: pl.concat(rows.with_columns(profile=pl.lit(n)) for n, rows in by_name.items())
        for name, by_name in (("counts", counts_by_name), ("profile", kinds_by_name))
    }
    return Report(report_tables, {"kinds": tables.kinds_figure(counts_by_name)}, titles, raw)


def _note_limits(name: str, counts: pl.DataFrame) -> Iterator[str]:
    missing = [kind for kind in profiles.KINDS if kind not in counts["kind"]]
    if missing:
        yield f"{name}: no run is of a kind that shows: {', '.join(missing)}."
    n_by_kind = dict(counts.select("kind", "n_facts").iter_rows())
    for kind in profiles.LEFT_OUT:
        if n := n_by_kind[kind]:
            yield f"{name}: {count(n, 'fact')} {'is' if n == 1 else 'are'} {kind}, and in no share."
