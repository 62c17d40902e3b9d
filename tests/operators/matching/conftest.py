"""Settings of the laws about matching."""

from hypothesis import settings

# A busy machine would fail a law for its time; the time limit of a whole test is pytest's.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
