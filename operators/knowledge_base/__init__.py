"""Knowledge bases: entities and triples, and which entities are plausible wrong answers to a fact.

Source: "Factual Knowledge Assessment of Language Models Using Distractors", section 3.3.
"""
