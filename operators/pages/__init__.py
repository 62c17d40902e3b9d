"""Pages: results as one self-contained HTML file that opens from disk."""
