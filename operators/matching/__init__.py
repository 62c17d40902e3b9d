"""From the text of an answer to whether it is right: normalised to lemmas, then compared."""
