"""What each command does. They take and return objects and print nothing."""
