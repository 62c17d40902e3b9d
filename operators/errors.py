"""The errors that factsweep raises on purpose.

FactsweepError            exit code 1: the run failed
├── InputError            exit code 2: something given is wrong; the message names it and the mend
│   ├── DamagedFileError  a published or given file cannot be read
│   └── ArtifactHeldError another driver holds the artifact
└── DecodingError         too many prompts have no answer
"""


class FactsweepError(Exception):
    """A run that cannot go on; the message is one plain sentence."""

    exit_code = 1


class InputError(FactsweepError):
    """Something that the user gave is wrong: the message names file, row or field, and the mend."""

    exit_code = 2


class DamagedFileError(InputError):
    """A Parquet file is truncated, empty, foreign or does not hold what its footer says."""


class ArtifactHeldError(InputError):
    """Another driver is writing the same artifact."""


class DecodingError(FactsweepError):
    """More prompts failed than the configuration allows."""
