"""Write values for people: lists of hosts, sizes, durations, terminal text. Pure."""
