"""The design effect: how many independent prompts a run of many wordings per fact is worth."""

import polars as pl

# Below this variance of a prompt's change, nothing but rounding is left of it.
_NO_VARIANCE = 1e-12


def design_effect(changes: pl.DataFrame) -> float | None:
    """Divide the variance of a difference by what it would be if each prompt had its own fact.

    The prompts of a fact are right and wrong together: 250 of them say less than 250 facts would.
    n_prompts / design effect is the number of independent prompts that would measure as sharply.
    Above 1 as a rule; below, where relations differ more than the facts in them do.

    `changes` has one row per pair: relation_id, numerator (its change, times its denominator),
    denominator, squares (its denominator × the mean of its prompts' squared changes) and n_prompts.
    With δ = Σ numerator / Σ denominator and z = (numerator − δ · denominator) / Σ denominator,

        clustered    Σ over relations of  n / (n − 1) · Σ (z − mean z)²,  n the relation's pairs
        independent  (Σ squares / Σ denominator − δ²) / (number of prompts − 1)

    Pairs within relations are what the intervals resample, too. None: the metric is no mean over
    prompts, no relation has two pairs, or all prompts change alike.

    Source: Kish 1965, section 8.2; linearised for ratios as in Cochran 1977, section 6.3. Miller
    2024 ("Adding error bars to evals") does so for evaluations of language models.

    >>> design_effect(pl.DataFrame({
    ...     "relation_id": ["P1"] * 4, "numerator": [1.0, 0.0, 1.0, 0.0], "denominator": [1.0] * 4,
    ...     "squares": [1.0, 0.0, 1.0, 0.0], "n_prompts": [50] * 4,
    ... }))
    66.33333333333333
    """
    total, n_prompts = changes.select(pl.sum("denominator", "n_prompts")).row(0)
    if not total or changes["squares"].has_nulls():
        return None
    difference = changes["numerator"].sum() / total
    residual = (pl.col("numerator") - difference * pl.col("denominator")) / total
    # `var` divides by n − 1, and is null for a relation of a single pair.
    within = changes.group_by("relation_id").agg(z=residual.var() * pl.len())["z"].drop_nulls()
    variance = changes["squares"].sum() / total - difference**2
    if within.is_empty() or variance < _NO_VARIANCE:
        return None
    return float(within.sum() / (variance / (n_prompts - 1)))
