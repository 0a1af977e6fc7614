"""What runs inside the training process: this directory itself stands first on its PYTHONPATH."""
