"""What every table shares: numbers, cards, published numbers beside ours."""
