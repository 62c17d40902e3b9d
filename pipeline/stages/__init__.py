"""One module per stage: `recipe` says what determines its artifact, `make` makes it."""
