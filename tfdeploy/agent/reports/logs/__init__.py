"""A task's log: its newest lines, its lines since a time, and what it says about the training."""
