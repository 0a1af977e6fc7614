"""A run that goes on: its start, its progress, its failures, its end, and results on their way."""
