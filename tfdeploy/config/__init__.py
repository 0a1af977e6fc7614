"""hosts.toml: its schema, its defaults, and the messages that refuse a wrong value."""

from __future__ import annotations

PER_GPU = -1
"""The value of `workers = "per-gpu"`: one worker for each of the host's GPUs."""
AUTO_PORTS: tuple[int, ...] = ()
"""The value of `ports = "auto"`: free ports, chosen on the host when a run starts."""
ANY_SIGNAL = "signals"
"""The name of every signal in `restart.exits`."""
# The variables of the roles that number the workers. A worker sees only its own GPUs, so it is a
# node with one process. Sources: torch.distributed.run ("Environment Variables"; NODE_RANK is
# Lightning's); jax.distributed.initialize, and Kubeflow's JAXJob for all but the first.
WORKER_VARIABLES = {
    "torch": {
        "MASTER_ADDR": "{address}",
        "MASTER_PORT": "{port}",
        "RANK": "{index}",
        "WORLD_SIZE": "{count}",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "{index}",
        "GROUP_RANK": "{index}",
    },
    "jax": {
        "JAX_COORDINATOR_ADDRESS": "{address}:{port}",
        "COORDINATOR_ADDRESS": "{address}",
        "COORDINATOR_PORT": "{port}",
        "NUM_PROCESSES": "{count}",
        "PROCESS_ID": "{index}",
    },
}
