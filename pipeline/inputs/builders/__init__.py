"""The verb `build`: data sets made anew, in the layouts that their readers read."""
