"""What the speeds of a sweep say: speed-ups, differences, prices, and the report."""
