"""What is known of how a run trains: its history, its speed, its slow tasks."""
