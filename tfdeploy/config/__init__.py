"""hosts.toml: its schema, its defaults, and the messages that refuse a wrong value."""

from __future__ import annotations

PER_GPU = -1
"""The value of `workers = "per-gpu"`: one worker for each of the host's GPUs."""
AUTO_PORTS: tuple[int, ...] = ()
"""The value of `ports = "auto"`: free ports, chosen on the host when a run starts."""
ANY_SIGNAL = "signals"
"""The name of every signal in `restart.exits`."""
