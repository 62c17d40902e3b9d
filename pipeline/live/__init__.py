"""What a run shows while it goes on: its log, its pulse, and the page of what is measured."""
