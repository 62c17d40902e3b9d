"""Where the variance of a score comes from: templates, facts × templates, names, and the rest.

For a prompt of fact f in template t under name k of the fact,

    y = mean_f + template_t + (fact × template)_ft + name_fk + rest_ftk

Within facts, half the mean squared difference of two prompts estimates the sum of the components
in which they differ; that is all that is used to split them:

    same template, other name    name + rest
    other template, same name    template + fact × template + rest
    both others                  template + fact × template + name + rest

The templates' own variance comes from their accuracies (`templates.py`). A component here has the
divisor (levels − 1), as that of a finite population has.

Source: Searle, Casella and McCulloch 1992, chapter 5 (Henderson's methods 1 and 3).
"""

from dataclasses import dataclass

import numpy as np

from factsweep.operators.estimates.crossed import Crossed, FloatArray, IntArray
from factsweep.operators.estimates.fluctuations.templates import FEW, Fits, differences, fitted
from factsweep.operators.estimates.groups import summed


@dataclass(frozen=True)
class Components:
    """One variance per relation and source; `degrees` are those of the residual."""

    template: FloatArray
    fact_template: FloatArray
    name: FloatArray
    rest: FloatArray
    degrees: float
    fits: Fits


def components(sample: Crossed, values: FloatArray) -> Components | None:
    """Split the variance of a score within facts; null where no fact was asked twice.

    Relations have their own templates' variance and their own sum of the others, which is split in
    the same proportion in all: few relations are large enough for more.
    """
    fits = fitted(sample, values)
    if fits is None:
        return None
    of_cell, name, rest = _shares(sample, values, fits)
    # The fit's residual is of means over the names asked in a template, which lessen all but one.
    of_name, of_rest = _left_by_means(sample)
    kept = of_cell + name * of_name + rest * of_rest
    within = fits.residual / kept if kept > 0 else np.zeros_like(fits.residual)
    return Components(
        fits.variance, of_cell * within, name * within, rest * within, fits.degrees, fits
    )


def compared(sample: Crossed, values: FloatArray) -> Components | None:
    """The components, where every fact was asked and all templates of each relation compared."""
    found = components(sample, values)
    if found is None or not sample.is_asked.all():
        return None
    return found if found.fits.known else None


def noise(sample: Crossed, found: Components, relation: int) -> FloatArray:
    """The covariance of a relation's fitted effects about those of the full run.

    Both are best linear estimates, one from a part of the other's answers, so that the variance of
    their difference is the difference of their variances (Hausman 1978, lemma 2.1). In the full run
    every fact met every template under each of its names, so that names differ between no two
    templates there.
    """
    inverse = found.fits.each[relation].inverse
    if sample.is_all:
        return np.zeros_like(inverse)
    mine = sample.relation == relation
    n = len(inverse)
    full = (np.eye(n) - 1 / n) / mine.sum()
    over_names = (1 / sample.n_names[mine]).mean()
    whole = found.fact_template[relation] + found.rest[relation] * over_names
    error: FloatArray = found.fits.residual[relation] * inverse - whole * full
    return error


def own_noise(sample: Crossed, found: Components, relation: int) -> FloatArray:
    """The same, with a variance for each template (`templates.Fit.sandwich`).

    What all prompts would leave of the noise is 0: what is left by now is the same part of each
    template's own as of all. With too few degrees of freedom to tell them apart they are alike.
    """
    fit, alike = found.fits.each[relation], noise(sample, found, relation)
    whole = float(found.fits.residual[relation] * np.trace(fit.inverse))
    if fit.degrees < FEW or whole <= 0:
        return alike
    return max(0.0, float(np.trace(alike))) / whole * fit.sandwich


def _left_by_means(sample: Crossed) -> tuple[float, float]:
    """What of the variance of names, and of the rest, differs between the means of templates.

    They are over the names that a fact was asked under in each; names that it was asked under in
    all of its templates differ between none of them.
    """
    of, group = sample.fact_template
    n_templates = np.bincount(of, minlength=sample.n_facts)
    each = (1 / np.bincount(group))[group]  # what a prompt weighs in the mean of its template
    alone = np.bincount(sample.fact, each**2, sample.n_facts)
    of_name, in_name = sample.fact_name
    shared = np.bincount(of_name, np.bincount(in_name, each) ** 2, sample.n_facts)
    over = 1 / np.maximum(1, n_templates)
    degrees = max(1, int((n_templates - 1).clip(0).sum()))
    left = alone - shared * over, alone * (1 - over)
    return float(left[0].sum()) / degrees, float(left[1].sum()) / degrees


def _shares(sample: Crossed, values: FloatArray, fits: Fits) -> tuple[float, float, float]:
    """The shares of fact × template, name and rest in what is not the templates'."""
    every, n_every = differences(sample.fact, values)
    by_template, n_template = differences(sample.fact_template[1], values)
    by_name, n_name = differences(sample.fact_name[1], values)
    n_other = n_every - n_template - n_name
    both = (every - by_template - by_name) / n_other if n_other > 0 else None
    names = by_name / n_name if n_name > 0 else None
    template = float(fits.variance.mean())
    if both is None or names is None:
        return 0.0, 0.0, 1.0
    name = max(0.0, both - names)
    within = max(0.0, names - template)
    rest = min(within, max(0.0, by_template / n_template - name)) if n_template > 0 else within
    total = name + within
    if total <= 0:
        return 0.0, 0.0, 1.0
    return (within - rest) / total, name / total, rest / total


def errors(sample: Crossed, weights: FloatArray, found: Components) -> FloatArray:
    """Split the variance of Σ w·y over the sample about Σ W·y over the full run.

    Sources (template, fact × template, name, rest) × relations.

    `weights` has what a fact weighs in the full run. With u the weight of a prompt in the estimate
    minus that in the full run, a component of variance S² adds S² · Σ (sum of u over a level)²:
    levels are exchangeable, since which is asked is drawn at random (Cochran 1977, section 2.9,
    with unequal weights). All u are 0 where everything was asked.
    """
    here = sample.sampled_weights(weights)
    cell = (here * sample.fact_means)[sample.fact]
    n_templates = sample.n_templates[sample.relation]

    def level(of: IntArray, group: IntArray, levels: IntArray) -> FloatArray:
        """Σ over the levels of a fact, asked or not, of the squared sum of u: by relation."""
        squares = np.bincount(of, np.bincount(group, cell, len(of)) ** 2, sample.n_facts)
        return summed(sample.relation, squares - 2 * weights * here / levels + weights**2 / levels)

    return np.stack(
        [
            found.template * template_level(sample, weights, cell),
            found.fact_template * level(*sample.fact_template, n_templates),
            found.name * level(*sample.fact_name, sample.n_names),
            found.rest * level(sample.fact, np.arange(len(cell)), sample.n_prompts),
        ]
    )


def template_level(sample: Crossed, weights: FloatArray, cell: FloatArray) -> FloatArray:
    """By relation, Σ over templates of (their weight in the sample − in the full run)².

    `weights` has what a fact weighs in the full run, `cell` what a sampled prompt does.
    """
    asked = np.bincount(sample.in_template, cell, int(sample.n_templates.sum()))
    relation = np.repeat(np.arange(len(sample.n_templates)), sample.n_templates)
    full = np.bincount(sample.relation, weights) / sample.n_templates
    own = np.bincount(relation, asked) / sample.n_templates
    # A relation whose facts weigh more here than in the full run differs in its mean, no template.
    scale = np.divide(own, full, out=np.ones_like(full), where=full > 0)
    return summed(relation, (asked - (full * scale)[relation]) ** 2)
