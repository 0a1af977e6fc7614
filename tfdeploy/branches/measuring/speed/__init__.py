"""What the speeds of a sweep say: speed-ups, differences, and the report."""
