"""Copy what the chief has written to other hosts, so that it outlives the chief's machine."""
