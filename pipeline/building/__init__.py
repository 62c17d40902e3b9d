"""The verb `build`: data sets rebuilt, in the layouts that their readers read."""
