"""Where files lie: a folder, S3, or memory."""
