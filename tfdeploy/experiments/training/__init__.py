"""What a training reached, and when: its course, its metrics and its pauses."""
