"""Methods: everything that one benchmark does its own way, in one module each."""

from collections.abc import Mapping

from factsweep.operators.methods import (
    bear,
    belief,
    belief_masked,
    distractors,
    judge,
    kamel,
    probelm,
    qa,
)
from factsweep.operators.methods.method import Method

METHODS: Mapping[str, Method] = {
    "belief": belief.METHOD,
    "belief-masked": belief_masked.METHOD,
    "kamel": kamel.METHOD,
    "probelm": probelm.METHOD,
    "distractors": distractors.METHOD,
    "qa": qa.METHOD,
    "judge": judge.METHOD,
    "bear": bear.METHOD,
}
