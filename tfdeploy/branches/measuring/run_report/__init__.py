"""One self-contained HTML page about runs: what was planned, what happened, what was learned."""
