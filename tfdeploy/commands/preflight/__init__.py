"""What `check` and `start` look at before a run: hosts, ports, addresses, and the plan itself."""
