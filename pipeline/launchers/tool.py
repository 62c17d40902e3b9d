"""The command of a scheduler that takes a job on its standard input."""

import subprocess
from collections.abc import Sequence

from factsweep.operators.errors import InputError


def handed(command: Sequence[str], text: str) -> str:
    """Pipe the text to the command, and return its output."""
    name = command[0]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise InputError(
            f"{name} is not on this machine; launch where it is, or take there what --dry-run "
            "prints."
        ) from error
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.split()) or f"exit code {error.returncode}"
        raise InputError(f"{name} did not take the job: {said.rstrip('.')}.") from error
    return done.stdout.strip()
