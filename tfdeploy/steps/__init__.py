"""What each command does, one file a command. Steps take and give objects, and print nothing."""
