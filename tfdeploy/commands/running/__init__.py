"""`tfdeploy run` and `attach`, after the start: follow a run to its end, stop and collect it."""
