"""Send releases to the hosts."""
