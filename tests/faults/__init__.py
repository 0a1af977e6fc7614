"""Faults injected into real trainings: what each must come to, and how long that took."""
