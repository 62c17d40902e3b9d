"""The artifacts of a run, which have their names before anything is computed.

facts → prompts → admitted → answers ─┬→ matched ─┬→ metrics     (one branch per setting)
                          ├→ further ─┘           │
                          └→ again ───────────────┘

A method that compares entities has a knowledge base in addition to its facts. `answers` are of all
prompts; `extra_outputs` has blocks of samples, or an encoder's answers to content-free prompts;
`repeated_answers` repeats some of the answers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from factsweep.operators.errors import InputError
from factsweep.operators.matching.normalise import BY_CHARACTER, has_lemmas, language_of
from factsweep.operators.methods.method import FILL, GENERATE, SCORE, PromptSetting
from factsweep.pipeline.config.budget import parse_budget
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages import ask_confidence, generate, prefer
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.admit import Admit
from factsweep.pipeline.stages.aggregate import Aggregate
from factsweep.pipeline.stages.choose import Choose
from factsweep.pipeline.stages.expand import Expand
from factsweep.pipeline.stages.external_answers import GivenAnswers, UnansweredPrompts
from factsweep.pipeline.stages.facts import ReadFacts, ReadKnowledgeBase, find_label_warnings
from factsweep.pipeline.stages.match import Match, Verdicts
from factsweep.pipeline.stages.question import Answer, Question, room
from factsweep.pipeline.stages.step import Stage, Step
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.store import Store


@dataclass(frozen=True)
class Branch:
    """The artifacts of one setting, and its steps, inputs before outputs.

    `chosen` has the prompts of a budget; null: all are asked.
    """

    weights: Weights
    setting: PromptSetting
    facts: Artifact
    prompts: Artifact
    admitted: Artifact
    answers: Artifact
    repeated_answers: Artifact | None
    extra_outputs: tuple[Artifact, ...]
    matched: Artifact
    metrics: Artifact
    steps: tuple[Step, ...]
    chosen: Artifact | None = None

    @property
    def title(self) -> str:
        """The setting, with its variant if it has one."""
        return " ".join(filter(None, (self.setting.name, self.setting.variant)))

    @property
    def expand(self) -> Expand:
        """The stage that writes its prompts."""
        stage = self.step(self.prompts).stage
        assert isinstance(stage, Expand), "prompts are expanded"
        return stage

    def step(self, artifact: Artifact) -> Step:
        """The step of an artifact."""
        return next(step for step in self.steps if step.artifact == artifact)

    def sources(self) -> tuple[Step, ...]:
        """The inputs of the prompts, the same in every setting: the facts and a knowledge base."""
        return self.step(self.prompts).after

    def artifacts(self) -> Iterator[Artifact]:
        """All artifacts, inputs before outputs."""
        return (step.artifact for step in self.steps)

    def list_questions(self) -> Iterator[tuple[Artifact, Question]]:
        """The artifacts that an engine writes, each with its question."""
        for step in self.steps:
            if step.question is not None:
                yield step.artifact, step.question

    def lacks_answers(self) -> bool:
        """Whether an artifact of an engine is incomplete."""
        return any(not artifact.is_complete() for artifact, _ in self.list_questions())

    def questions(self) -> list[Question]:
        """One question per table: all blocks of samples are asked alike."""
        return list({question.table: question for _, question in self.list_questions()}.values())

    def list_outputs(self) -> Iterator[Artifact]:
        """The artifacts of model output: the answers, the repeated ones, and further ones."""
        yield from filter(None, (self.answers, self.repeated_answers, *self.extra_outputs))


@dataclass(frozen=True)
class Plan:
    """All artifacts of a run."""

    run: Run
    weights: Weights
    branches: tuple[Branch, ...]

    @property
    def steps(self) -> list[Step]:
        """The steps of all branches, each once, inputs before outputs."""
        steps = (step for branch in self.branches for step in branch.steps)
        return list({step.artifact.folder: step for step in steps}.values())

    @property
    def outputs(self) -> list[Artifact]:
        """The artifacts of model output in all branches, each once."""
        artifacts = (artifact for branch in self.branches for artifact in branch.list_outputs())
        return list({artifact.folder: artifact for artifact in artifacts}.values())

    @property
    def store(self) -> Store:
        """The store of the artifacts."""
        return Store(self.run.artifacts)

    def external_answers(self) -> Iterator[GivenAnswers]:
        """The stages that read answers of another system."""
        stages = (branch.step(branch.answers).stage for branch in self.branches)
        return (stage for stage in stages if isinstance(stage, GivenAnswers))

    def missing(self) -> list[str]:
        """The folders of the artifacts that are not complete."""
        return [step.artifact.folder for step in self.steps if not step.artifact.is_complete()]

    def is_complete(self) -> bool:
        """Whether nothing is left to compute.

        Complete facts and metrics are enough, as their inputs may have been removed to save room.
        But an artifact that is open, since a damaged shard was quarantined, is made whole.

        Raises:
            DamagedFileError: a manifest was changed or cut off.
        """
        if any(step.artifact.is_open() for step in self.steps):
            return False
        return all(
            artifact.is_complete()
            for branch in self.branches
            for artifact in (branch.facts, branch.metrics)
        )


def resolve_run(run: Run) -> Run:
    """The run with what depends on this machine or its table: the model's processor, max_tokens."""
    decoding = facts_stage.with_room(run)
    model = models.resolve_dtype(run.model, run.cluster.device)
    return replace(run, decoding=decoding, model=model)


def warnings(plan: Plan) -> Iterator[str]:
    """A sentence for each unexpected cost or risk of a run on this machine.

    Raises:
        InputError: a fact of one's own table has no right answer that can be matched.
    """
    run = plan.run
    yield from find_label_warnings(run.benchmark, run.matching.pipeline, plan.branches[0].facts)
    yield from facts_stage.find_table_warnings(run, partial(models.tokenizer, plan.weights))
    if run.answers is not None:
        for answers in plan.external_answers():
            yield from answers.warnings()
        return
    if slow := processor.warn_of_slow_dtype(run.model.dtype, run.device):
        yield slow
    language = language_of(run.matching.pipeline)
    if language is not None and not has_lemmas(language):
        units = "characters" if language in BY_CHARACTER else "words"
        yield (
            f"there are no lemmas for benchmark.language={language}: {units} are compared without "
            "them, so that another form of the right word is no right answer."
        )


def build_plan(run: Run) -> Plan:
    """The artifacts of a run, with answers of an engine or of the file `answers`.

    They are those of all prompts; `build_requested_plan` restricts them to the budget.

    Raises:
        InputError: the data set, the model or the file cannot be found.
    """
    run = resolve_run(run)
    if run.answers is None:
        weights = models.resolve(run.model)
    else:
        weights = Weights(run.model, f"answers of {Path(run.answers).name}")
    sources, judges = _plan_sources(run), load_verdicts(run)
    branches = (_plan_branch(run, setting, sources, weights, judges) for setting in run.settings)
    return Plan(run, weights, tuple(branches))


def build_requested_plan(run: Run) -> Plan:
    """The artifacts that a run asks for: those of its budget, or all."""
    plan = build_plan(run)
    return plan if run.budget is None else sample_plan(plan)


def sample_plan(plan: Plan) -> Plan:
    """The plan of a run with a budget: the steps to its answers, whose shards stay open.

    Raises:
        InputError: the benchmark has no estimates.
    """
    run = plan.run
    check_budget(run)
    part = parse_budget(str(run.budget))
    seed = run.seed if run.sample_seed is None else run.sample_seed
    sampling = run.method.measure.sampling
    whole_pairs = sampling is not None and sampling.whole_pairs
    branches = []
    for branch in plan.branches:
        prompts, answers = branch.step(branch.prompts), branch.step(branch.answers)
        chosen = _step(run, Choose(branch.prompts, part, seed, whole_pairs), prompts)
        question = answers.question and replace(answers.question, part=chosen.artifact)
        answers = replace(answers, after=(*answers.after, chosen), question=question)
        steps = (*branch.sources(), prompts, chosen, branch.step(branch.admitted), answers)
        reduced = replace(branch, repeated_answers=None, extra_outputs=())
        branches.append(replace(reduced, chosen=chosen.artifact, steps=steps))
    return replace(plan, branches=tuple(branches))


def check_budget(run: Run) -> None:
    """Refuse the budget of a benchmark without estimates."""
    if run.budget is None or run.method.measure.sampling is None:
        raise InputError(
            f"budget={run.budget}: parts of benchmark={run.benchmark.name} are not estimated with "
            "this model; leave it out. Decoders on MyriadLAMA, KAMEL and PRobELM are."
        )


def asking(run: Run, setting: PromptSetting) -> tuple[Step, ...]:
    """The steps to the prompts of a setting, which come last; they need no model."""
    prompts = _plan_prompts(run, setting, _plan_sources(run))
    return (*prompts.after, prompts)


def _plan_sources(run: Run) -> tuple[Step, ...]:
    """The inputs of prompts: the facts, and the knowledge base where a method needs one."""
    entry = catalog.entry_of_benchmark(run.benchmark)
    stages: list[Stage] = [ReadFacts(run.benchmark, entry)]
    if run.method.ask.knowledge_base:
        stages.append(ReadKnowledgeBase(run.benchmark, entry))
    return tuple(_step(run, stage) for stage in stages)


def _plan_prompts(run: Run, setting: PromptSetting, sources: tuple[Step, ...]) -> Step:
    facts, *base = (step.artifact for step in sources)
    size = run.cluster.rows_per_shard
    has_shots = getattr(setting, "shots", 0)
    values_in = facts_stage.find_demonstration_language(run.benchmark) if has_shots else None
    base_or_none = base[0] if base else None
    expand = Expand(facts, run.benchmark.method, setting, run.seed, size, base_or_none, values_in)
    return _step(run, expand, *sources)


# The steps to admitted prompts, answers, repeated answers, and further answers.
_Answers = tuple[Step, Step, Step | None, tuple[Step, ...]]


def _plan_branch(
    run: Run,
    setting: PromptSetting,
    sources: tuple[Step, ...],
    weights: Weights,
    judges: tuple[Verdicts, ...],
) -> Branch:
    method, samples, facts = run.benchmark.method, run.decoding.samples, sources[0].artifact
    has_samples = run.answers is None and "samples" in run.method.ask.ability.extra_tables
    n_sampled = samples.n_prompts if has_samples and samples.n_answers else 0
    prompts = _plan_prompts(run, setting, sources)
    plan_answers = _plan_external_answers if run.answers else _plan_answers
    admitted, answers, repeated_step, further_steps = plan_answers(run, setting, prompts, weights)
    further_artifacts = tuple(step.artifact for step in further_steps)
    inputs = (facts, prompts.artifact, answers.artifact, further_artifacts)
    repeats = () if repeated_step is None else (repeated_step,)
    repeated = None if repeated_step is None else repeated_step.artifact
    is_read_again = "confidences" in run.method.measure.matched
    read_again = repeated if is_read_again else None
    match = Match(method, *inputs, read_again, run.matching, weights, n_sampled, judges)
    read_steps = repeats if is_read_again else ()
    matched = _step(run, match, prompts, answers, *further_steps, *read_steps)
    aggregate = Aggregate(
        method=method,
        model=run.model.name,
        benchmark=run.benchmark.name,
        setting=setting,
        options=run.metrics,
        seed=run.seed,
        n_sampled=n_sampled,
        facts=facts,
        prompts=prompts.artifact,
        answers=answers.artifact,
        repeated_answers=repeated,
        matched=matched.artifact,
    )
    metrics = _step(run, aggregate, matched, *repeats)
    return Branch(
        weights=weights,
        setting=setting,
        facts=facts,
        prompts=prompts.artifact,
        admitted=admitted.artifact,
        answers=answers.artifact,
        repeated_answers=repeated,
        extra_outputs=further_artifacts,
        matched=matched.artifact,
        metrics=metrics.artifact,
        steps=(*sources, prompts, admitted, answers, *repeats, *further_steps, matched, metrics),
    )


def load_verdicts(run: Run) -> tuple[Verdicts, ...]:
    """The verdicts of the judges of a run.

    Raises:
        InputError: the benchmark takes no judges, or their verdicts are gone.
    """
    if run.judges and not run.method.measure.takes_judges:
        raise InputError(
            f"judges: the answers of benchmark={run.benchmark.name} are not judged by models, but "
            "those to open questions are; leave it out."
        )
    store = Store(run.artifacts)
    return tuple(Verdicts.of_metrics(store, folder) for folder in run.judges or ())


def _plan_answers(run: Run, setting: PromptSetting, prompts: Step, weights: Weights) -> _Answers:
    sources, ability = [step.artifact for step in prompts.after], run.method.ask.ability
    if ability == FILL:
        questions = generate.masked_questions(run, sources[0])
    elif ability == SCORE:
        questions = generate.score_questions(run)
    elif ability == GENERATE:
        questions = ask_confidence.add_questions(run, generate.questions(run, setting))
    else:
        questions = prefer.questions(run, setting, sources, prompts.artifact)
    task = questions.answers.task
    admitted = _step(run, Admit(prompts.artifact, weights, ability, task, room(run)), prompts)

    def build_step(question: Question) -> Step:
        stage = Answer(question, admitted.artifact, weights, run.decoding, ability)
        artifact = Artifact(Store(run.artifacts), stage.recipe)
        return Step(artifact, (admitted,), stage=None, question=question)

    answers, repeated, extra = questions
    repeated_step = None if repeated is None else build_step(repeated)
    return admitted, build_step(answers), repeated_step, tuple(map(build_step, extra))


def _plan_external_answers(
    run: Run, setting: PromptSetting, prompts: Step, _weights: Weights
) -> _Answers:
    source = Path(str(run.answers)), run.method.ask.ability, setting, prompts.artifact
    answers = GivenAnswers(*source, run.decoding.stop, bool(run.model.thinking))
    return _step(run, UnansweredPrompts(answers), prompts), _step(run, answers, prompts), None, ()


def _step(run: Run, stage: Stage, *after: Step) -> Step:
    return Step(Artifact(Store(run.artifacts), stage.recipe), after, stage)
