"""Releases on this host: received, staged, verified, and passed on to other hosts."""
