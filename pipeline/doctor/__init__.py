"""Before a GPU hour is spent: whether a machine, its stores and its model will carry a sweep."""
