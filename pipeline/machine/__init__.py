"""This machine: its processors, its secrets, its checkout, its terminal."""
