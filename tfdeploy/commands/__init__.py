"""What each command does, one file per command. They take and return objects and print nothing."""
