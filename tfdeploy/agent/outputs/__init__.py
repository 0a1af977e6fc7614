"""What a task writes: checkpoints, event files, other outputs; verified and held for transfer."""
