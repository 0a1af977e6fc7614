"""Compare collected runs: what was reported, over which axis, in a table and a plot."""
