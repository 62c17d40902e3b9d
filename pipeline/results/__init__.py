"""Results for people and programs, from one run or several."""
