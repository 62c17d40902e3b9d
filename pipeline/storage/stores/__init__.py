"""Where files lie: a folder, S3, Google's, or another store that Arrow knows."""
