"""The connection daemon: SSH connections that outlive a command, as OpenSSH's ControlPersist."""
