"""The command line, a verb or a few kindred ones a module: arguments, and what is printed."""
