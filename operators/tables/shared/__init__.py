"""What every table shares: number formats, cards, our numbers next to published ones."""
