"""Knowledge sharing: how much of what one run knows another one knows, too."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from factsweep.operators.schemas import schema

SHARING = schema("run text, other text, n_covered int, n_shared int, sharing float")


def knowledge_sharing(runs: Iterable[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
    """Give for each ordered pair of runs the share (0 to 1) of the first's knowledge in the second.

    A run covers the prompts that it answers correctly; two runs are compared on the prompts that
    both have an answer to. `runs` gives a name and a table (prompt_id, correct) each, and is read
    one at a time. The result is the matrix in long form: run, other, n_covered (by `run`), n_shared
    (by both), sharing = n_shared / n_covered, null where the run covers nothing. Models and
    settings of one benchmark have the same prompt ids and can stand side by side.

    Source: BELIEF, section 6.3, Figure 2 (2025: section 6.4, Figure 4).

    >>> run = pl.DataFrame({"prompt_id": ["p", "q", "r"], "correct": [True, True, False]})
    >>> other = pl.DataFrame({"prompt_id": ["p", "q", "s"], "correct": [True, False, True]})
    >>> knowledge_sharing([("A", run), ("B", other)]).rows()
    [('A', 'A', 2, 2, 1.0), ('A', 'B', 2, 1, 0.5), ('B', 'A', 1, 1, 1.0), ('B', 'B', 2, 2, 1.0)]
    """
    names: list[str] = []
    wide = pl.DataFrame(schema={"prompt_id": pl.String})
    for name, answers in runs:
        column = pl.col("correct").cast(pl.Boolean).alias(str(len(names)))
        own = answers.select(pl.col("prompt_id").cast(pl.String), column)
        wide = wide.join(own, on="prompt_id", how="full", coalesce=True)
        names.append(name)
    wide = wide.drop("prompt_id")
    answered = [column.is_not_null().to_numpy() for column in wide]
    covered = [column.fill_null(False).to_numpy() for column in wide]
    rows = [
        (
            names[i],
            names[j],
            int(np.count_nonzero(covered[i] & answered[j])),
            int(np.count_nonzero(covered[i] & covered[j])),
        )
        for i in range(len(names))
        for j in range(len(names))
    ]
    share = pl.when(pl.col("n_covered") > 0).then(pl.col("n_shared") / pl.col("n_covered"))
    counts = pl.DataFrame(rows, schema=list(SHARING)[:4], orient="row")
    return counts.with_columns(sharing=share).cast(SHARING)
