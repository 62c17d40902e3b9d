"""How far answers and scores change when they are made again."""
