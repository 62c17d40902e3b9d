"""Studies: many models, checkpoints and seeds as one piece of work."""
