"""What every metric shares: rows, ratios of sums, intervals, means over relations."""
