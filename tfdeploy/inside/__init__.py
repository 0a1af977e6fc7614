"""Code that runs in the training processes: this directory is the first on their PYTHONPATH."""
