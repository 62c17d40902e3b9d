"""The verb `judge`: models judge the answers of a run."""

import argparse

from factsweep.pipeline.commands.arguments import Parser
from factsweep.pipeline.commands.run import print_card


def add(verbs: "argparse._SubParsersAction[Parser]") -> None:
    """Add the verb to the command line."""
    command = verbs.add_parser(
        "judge",
        description="have a model judge the answers of a run, beside exact and contains",
        examples=[
            "factsweep judge mine model=qwen2.5-7b-it",
            "factsweep judge mine model=endpoint model.id=gpt-4o-mini "
            "model.endpoint=https://api.openai.com/v1 max_cost=5 model.price_in=0.15 "
            "model.price_out=0.60",
            "factsweep judge mine model=qwen2.5-7b-it,llama3.1-8b-it,gemma2-9b-it",
        ],
    )
    command.take(
        "judged",
        keys=None,
        about="JUDGED is a run of open questions with its answers. The overrides are those of the "
        "judge, which is asked in runs of its own, results/judge-<model>/; several values give "
        "several judges, and a majority. An answer that was judged is not asked again.",
        run=_judge,
    )


def _judge(args: argparse.Namespace) -> int:
    from factsweep.pipeline.config.compose import expand_runs
    from factsweep.pipeline.runs.judge import judge

    for judge_run in expand_runs(args.overrides):
        judgement = judge(args.judged, judge_run.overrides)
        print(judgement.sentence, flush=True)
    return print_card(judgement.run.folder)
