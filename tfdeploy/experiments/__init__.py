"""Measure and compare trainings: sweeps, speed-ups, scalars and plots."""
