"""The hosts of a run, asked in parallel: agents, sessions, and validation of answers."""
