"""How different the templates of a data set are."""
