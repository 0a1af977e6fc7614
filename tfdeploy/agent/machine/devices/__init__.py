"""The GPUs of this machine, by their makers."""
