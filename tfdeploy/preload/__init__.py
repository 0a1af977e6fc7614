"""A C library that is preloaded into each task, and the script that builds it."""
