"""This machine: processes, ports, GPU leases, locks, sockets and login sessions."""
