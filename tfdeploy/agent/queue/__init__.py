"""The queue of a host: who waits for its GPUs and ports, and what a task takes of them."""
