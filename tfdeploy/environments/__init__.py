"""The Python environment of each host: what hosts.toml and its requirements files say."""
