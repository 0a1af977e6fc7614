"""Hosts reached with OpenSSH itself, and commands that a user runs on a host."""
