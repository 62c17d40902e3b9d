"""Models that metrics and descriptions of data sets use; nothing of them is measured."""
