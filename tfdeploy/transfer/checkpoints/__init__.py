"""Checkpoints on their way: from the chief to the controller, and to the next chief."""
