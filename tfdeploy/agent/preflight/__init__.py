"""Checks on a host before tasks start: its software, its ports, and whether it reaches others."""
