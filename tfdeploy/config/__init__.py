"""hosts.toml: its schema, its defaults, and the messages that refuse a wrong value."""
