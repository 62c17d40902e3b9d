"""From an answer's text to whether it is right: normalise, key, match, correct."""
