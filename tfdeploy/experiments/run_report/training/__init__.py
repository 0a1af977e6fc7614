"""The charts of a report: losses, speed and the use of GPUs."""
