"""One supervisor for each task: start it, watch it, restart it, and take part in its run."""
