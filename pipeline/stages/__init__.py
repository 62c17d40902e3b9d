"""One module a stage: `recipe` says what determines its artifact, `make` makes it."""
