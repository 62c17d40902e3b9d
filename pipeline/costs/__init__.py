"""What work took, and what it will take."""
