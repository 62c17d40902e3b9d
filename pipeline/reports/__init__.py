"""What is made of past runs: comparisons, reports of several, exports; and watching one."""
