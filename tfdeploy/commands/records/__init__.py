"""The record of a run as its hosts have it: whether it counts, and how it is taken."""
