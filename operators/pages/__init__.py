"""Pages: results as one HTML file that opens from disk, with nothing beside it."""
