"""Propose a hosts.toml: what the machines have, how the script is distributed, and the text."""
