"""The Python environment of each host, as hosts.toml and its requirements files say, and that of
tfdeploy itself."""
