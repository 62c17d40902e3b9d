"""The command line, one module per verb or per few related ones: arguments, and what is printed."""
