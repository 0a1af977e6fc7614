"""Python environments on this host: built once for each content, and used by tasks."""
