"""Where results lie: files, artifacts, leases, tables."""
