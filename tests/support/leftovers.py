"""Processes that a user runs on a host, without those that only query the host."""

from __future__ import annotations

LISTING = "ps -u trainer -o pid=,ppid=,args= -ww"
# The login that queries the host, and the commands that it runs.
QUERY = ("sshd", "ps ", "-bash", "bash -c", "sh -c")
INIT = "1"


def parsed(listed: str) -> dict[int, str]:
    """Return {pid: command line} from the output of LISTING, without agents that wait for requests:
    the connection daemon keeps their logins. An agent whose parent is init is a leftover."""
    found = [line.split(None, 2) for line in listed.splitlines()]
    waiting = {pid for pid, parent, args in found if parent != INIT and args.endswith(" serve")}
    return {
        int(pid): args
        for pid, _, args in found
        if not args.startswith(QUERY) and pid not in waiting
    }
