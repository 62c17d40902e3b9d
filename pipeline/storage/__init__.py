"""Where results are stored: files, artifacts, leases, tables."""
