"""Which artifacts a run is made of; their names are known before anything is computed.

facts → prompts → admitted → answers ─┬→ matched ─┬→ metrics     (one branch per setting)
                          ├→ further ─┘           │
                          └→ again ───────────────┘

A method that compares entities has a knowledge base in addition to its facts. `answers` are of all
prompts; `further` is what is asked in addition (blocks of samples; what an encoder says to
content-free prompts); `again` are some of the answers made a second time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from factsweep.operators.errors import InputError
from factsweep.operators.matching.normalise import BY_CHARACTER, has_lemmas, language_of
from factsweep.operators.methods.method import Asked
from factsweep.operators.wording import listed
from factsweep.pipeline.cluster.hardware import device
from factsweep.pipeline.config.budget import Budget, budget
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine import processor
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.admit import Admit
from factsweep.pipeline.stages.aggregate import Aggregate
from factsweep.pipeline.stages.answer import Answer, questions
from factsweep.pipeline.stages.choose import Choose
from factsweep.pipeline.stages.expand import Expand
from factsweep.pipeline.stages.facts import ReadFacts, ReadKnowledgeBase, label_warnings
from factsweep.pipeline.stages.given import GivenAnswers, Unanswered
from factsweep.pipeline.stages.match import Match
from factsweep.pipeline.stages.question import Question, room
from factsweep.pipeline.stages.stage import Stage
from factsweep.pipeline.stages.step import Step
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.store import Store


@dataclass(frozen=True)
class Branch:
    """The artifacts of one setting, by name, and its steps, inputs before outputs.

    `chosen` names the prompts that a budget asks; null: all are asked.
    """

    weights: Weights
    setting: Asked
    facts: Artifact
    prompts: Artifact
    admitted: Artifact
    answers: Artifact
    again: Artifact | None
    further: tuple[Artifact, ...]
    matched: Artifact
    metrics: Artifact
    steps: tuple[Step, ...]
    chosen: Artifact | None = None

    @property
    def title(self) -> str:
        """The setting, with its variant if it has one."""
        return " ".join(filter(None, (self.setting.name, self.setting.variant)))

    def step(self, artifact: Artifact) -> Step:
        """The step that makes an artifact."""
        return next(step for step in self.steps if step.artifact == artifact)

    def sources(self) -> tuple[Step, ...]:
        """What prompts are made of, the same in every setting: the facts, and what is known."""
        return self.step(self.prompts).after

    def artifacts(self) -> Iterator[Artifact]:
        """All of them, inputs before outputs."""
        return (step.artifact for step in self.steps)

    def asked(self) -> Iterator[tuple[Artifact, Question]]:
        """The artifacts that an engine writes, each with what the engine is asked for it."""
        for step in self.steps:
            if step.question is not None:
                yield step.artifact, step.question

    def lacks_answers(self) -> bool:
        """Whether an engine has something left to write."""
        return any(not artifact.is_complete() for artifact, _ in self.asked())

    def questions(self) -> list[Question]:
        """What is asked for each table: all blocks of samples are asked alike."""
        return list({question.table: question for _, question in self.asked()}.values())

    def answered(self) -> Iterator[Artifact]:
        """What is written of the model: the answers, those made again, and further ones."""
        yield self.answers
        yield from (self.again, *self.further) if self.again is not None else self.further


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
    def answered(self) -> list[Artifact]:
        """What engines answer in all branches, each artifact once."""
        found = (each for branch in self.branches for each in branch.answered())
        return list({each.folder: each for each in found}.values())

    @property
    def store(self) -> Store:
        """Where the artifacts are."""
        return Store(self.run.artifacts)

    def missing(self) -> list[str]:
        """The folders of the artifacts that are not complete."""
        return [step.artifact.folder for step in self.steps if not step.artifact.is_complete()]

    def is_complete(self) -> bool:
        """Whether there is nothing left to compute.

        Facts and metrics are enough: what these were made of may have been removed to save room.
        But an artifact that is open, since a damaged shard of it was set aside, is made whole.

        Raises:
            DamagedFileError: a manifest is not what was written.
        """
        needed = (each for branch in self.branches for each in (branch.facts, branch.metrics))
        return not any(step.artifact.is_open() for step in self.steps) and all(
            each.is_complete() for each in needed
        )


def settled(run: Run) -> Run:
    """The run with what depends on this machine or its table: the model's processor, max_tokens."""
    run = replace(run, model=models.settled(run.model, run.cluster.device))
    return replace(run, decoding=facts_stage.with_room(run))


def warnings(plan: Plan) -> Iterator[str]:
    """What a run costs or risks here that one may not expect, a sentence each.

    Raises:
        InputError: a fact of one's own table has no right answer that can be matched.
    """
    run = plan.run
    yield from label_warnings(run.benchmark, run.matching.pipeline, plan.branches[0].facts)
    yield from filter(None, (_meant(run), *facts_stage.own_table_sentences(run)))
    if run.answers is None:
        slow = processor.warning(run.model.dtype, device(run.cluster))
        lemmas = _without_lemmas(run.matching.pipeline)
        yield from filter(None, (slow, lemmas))
        yield from facts_stage.cut_answers(run, partial(models.tokenizer, plan.weights))


def _meant(run: Run) -> str | None:
    """Which columns of a table of facts are read as others; null: none are."""
    entry = catalog.of_benchmark(run.benchmark)
    read = [f"{col} as {name}" for col, name in catalog.meant(entry, run.benchmark.path).items()]
    what = f"{run.benchmark.path}: columns are read by what they seem to be, {listed(read)}."
    return what if read else None


def _without_lemmas(pipeline: str) -> str | None:
    """That words of a language are compared as they are; null: their lemmas are known."""
    language = language_of(pipeline)
    if language is None or has_lemmas(language):
        return None
    what = "characters" if language in BY_CHARACTER else "words"
    return (
        f"there are no lemmas for benchmark.language={language}: {what} are compared as they are, "
        "so that another form of the right word is no right answer."
    )


def planned(run: Run) -> Plan:
    """The artifacts of a run: its answers come from an engine, or from the file that `answers` is.

    Of one with a budget these are those of all prompts: `asked` has what is asked of them.

    Raises:
        InputError: the data set, the model or the file cannot be found.
    """
    run = settled(run)
    if run.answers is None:
        weights = models.resolve(run.model)
    else:
        weights = Weights(run.model, f"answers of {Path(run.answers).name}")
    sources = _sources(run)
    return Plan(run, weights, tuple(_branch(run, each, sources, weights) for each in run.settings))


def asked(run: Run) -> Plan:
    """What a run asks: the part of its budget, or all."""
    plan = planned(run)
    return plan if run.budget is None else sampled(plan)


def sampled(plan: Plan) -> Plan:
    """The plan of a run with a budget: no answer but to the prompts that are chosen.

    Raises:
        InputError: the benchmark is none of which parts are asked.
    """
    check_budget(plan.run)
    of = budget(str(plan.run.budget))
    assert of.hours is None, "hours are prompts by now"
    return replace(plan, branches=tuple(_part(plan.run, each, of) for each in plan.branches))


def check_budget(run: Run) -> None:
    """Refuse a budget of what is not asked in part."""
    if run.budget is None or run.method.measure.sampling is None:
        raise InputError(
            f"budget={run.budget}: parts of benchmark={run.benchmark.name} are not estimated with "
            "this model; leave it out. Decoders on MyriadLAMA, KAMEL and PRobELM are."
        )


def _part(run: Run, branch: Branch, of: Budget) -> Branch:
    """The steps to the answers of a budget, which stay open."""
    prompts, answers = branch.step(branch.prompts), branch.step(branch.answers)
    sampling = run.method.measure.sampling
    seed = run.seed if run.sample_seed is None else run.sample_seed
    whole_pairs = sampling is not None and sampling.whole_pairs
    chosen = _step(run, Choose(branch.prompts, of, seed, whole_pairs), prompts)
    question = answers.question and replace(answers.question, part=chosen.artifact)
    part = replace(answers, after=(*answers.after, chosen), question=question)
    steps = (*branch.sources(), prompts, chosen, branch.step(branch.admitted), part)
    return replace(branch, again=None, further=(), chosen=chosen.artifact, steps=steps)


def asking(run: Run, setting: Asked) -> tuple[Step, ...]:
    """The steps to the prompts of a setting, which are the last; they need no model."""
    prompts = _prompts(run, setting, _sources(run))
    return (*prompts.after, prompts)


def _sources(run: Run) -> tuple[Step, ...]:
    """What prompts are made of: the facts, and the knowledge base where a method needs one."""
    entry = catalog.of_benchmark(run.benchmark)
    stages: list[Stage] = [ReadFacts(run.benchmark, entry)]
    if run.method.ask.knowledge_base:
        stages.append(ReadKnowledgeBase(run.benchmark, entry))
    return tuple(_step(run, stage) for stage in stages)


def _prompts(run: Run, setting: Asked, sources: tuple[Step, ...]) -> Step:
    facts, *base = (step.artifact for step in sources)
    size = run.cluster.rows_per_shard
    values_in = facts_stage.demonstrated_in(run.benchmark) if getattr(setting, "shots", 0) else None
    base_or_none = base[0] if base else None
    expand = Expand(facts, run.benchmark.method, setting, run.seed, size, base_or_none, values_in)
    return _step(run, expand, *sources)


_Said = tuple[Step, Step, Step | None, tuple[Step, ...]]  # what a model says to prompts


def _branch(run: Run, setting: Asked, sources: tuple[Step, ...], weights: Weights) -> Branch:
    method, samples, facts = run.benchmark.method, run.decoding.samples, sources[0].artifact
    has_samples = run.answers is None and "samples" in run.method.ask.ability.further
    n_sampled = samples.n_prompts if has_samples and samples.n_answers else 0
    prompts = _prompts(run, setting, sources)
    said = _given(run, setting, prompts) if run.answers else _asked(run, setting, prompts, weights)
    admitted, answers, again, further = said
    others = tuple(step.artifact for step in further)
    asked = (facts, prompts.artifact, answers.artifact)
    match = Match(method, *asked, others, run.matching, weights, n_sampled)
    matched = _step(run, match, prompts, answers, *further)
    twice = () if again is None else (again,)
    repeated = None if again is None else again.artifact
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
        again=repeated,
        matched=matched.artifact,
    )
    metrics = _step(run, aggregate, matched, *twice)
    return Branch(
        weights=weights,
        setting=setting,
        facts=facts,
        prompts=prompts.artifact,
        admitted=admitted.artifact,
        answers=answers.artifact,
        again=repeated,
        further=others,
        matched=matched.artifact,
        metrics=metrics.artifact,
        steps=(*sources, prompts, admitted, answers, *twice, *further, matched, metrics),
    )


def _asked(run: Run, setting: Asked, prompts: Step, weights: Weights) -> _Said:
    made_of = [each.artifact for each in prompts.after]
    found = questions(run, setting, made_of, prompts.artifact)
    ability = run.method.ask.ability
    admit = Admit(prompts.artifact, weights, ability, found.answers.task, room(run))
    admitted = _step(run, admit, prompts)

    def answered(question: Question) -> Step:
        stage = Answer(question, admitted.artifact, weights, run.decoding, ability)
        artifact = Artifact(Store(run.artifacts), stage.recipe)
        return Step(artifact, (admitted,), stage=None, question=question)

    again = None if found.again is None else answered(found.again)
    return admitted, answered(found.answers), again, tuple(map(answered, found.further))


def _given(run: Run, setting: Asked, prompts: Step) -> _Said:
    what = Path(str(run.answers)), run.method.ask.ability, setting, prompts.artifact
    given = GivenAnswers(*what, run.decoding.stop, bool(run.model.thinking))
    return _step(run, Unanswered(given), prompts), _step(run, given, prompts), None, ()


def _step(run: Run, stage: Stage, *after: Step) -> Step:
    return Step(Artifact(Store(run.artifacts), stage.recipe), after, stage)
