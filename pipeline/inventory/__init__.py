"""What a store holds: what each artifact is needed for, what is outdated, and what can go."""
