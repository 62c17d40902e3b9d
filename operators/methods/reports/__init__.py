"""What the methods with many tables and figures write and show of their numbers."""
