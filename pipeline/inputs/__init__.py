"""What comes from outside: data sets and models."""
