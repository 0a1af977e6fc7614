"""Who may connect to a task from this host and from others: see docs/security.md."""
