"""What this host reports about tasks: status, progress, logs and small files."""
