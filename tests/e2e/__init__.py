"""Hosts in containers, the real TensorFlow, and the command line."""
