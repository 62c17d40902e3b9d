"""The errors that factsweep raises on purpose.

FactsweepError            exit code 1: the run failed
├── InputError            exit code 2: something given is wrong; the message names it and the fix
│   ├── DamagedFileError  a published or given file cannot be read
│   └── ArtifactHeldError another driver holds the artifact
├── DecodingError         too many prompts have no answer
└── StoppedError          the user asked the run to stop; what is finished is kept
"""


class FactsweepError(Exception):
    """A run that cannot go on; the message is one plain sentence."""

    exit_code = 1


class InputError(FactsweepError):
    """Something that the user gave is wrong: the message names file, row or field, and the fix."""

    exit_code = 2


class DamagedFileError(InputError):
    """A Parquet file is truncated, empty, foreign or does not hold what its footer says.

    `name` is that of a shard in its store; null for a file that the user gave.
    """

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message, name)
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])


class ArtifactHeldError(InputError):
    """Another driver is writing the same artifact."""


class StoppedError(FactsweepError):
    """The run was asked to stop; every finished answer is published."""

    exit_code = 130


class DecodingError(FactsweepError):
    """More prompts failed than the configuration allows."""
