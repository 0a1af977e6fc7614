"""What a user of a host runs there, less what only asks on the user's behalf."""

from __future__ import annotations

LISTING = "ps -u trainer -o pid=,ppid=,args= -ww"
# The login that asks, and what it asks with.
OWN = ("sshd", "ps ", "-bash", "bash -c", "sh -c")
INIT = "1"


def parsed(listed: str) -> dict[int, str]:
    """{pid: command line} of what LISTING gives. An agent that waits for the next question is the
    child of a login: the keeper at home keeps it. What init has taken over waits for nobody."""
    found = [line.split(None, 2) for line in listed.splitlines()]
    asked = {pid for pid, parent, args in found if parent != INIT and args.endswith(" serve")}
    return {
        int(pid): args for pid, _, args in found if not args.startswith(OWN) and pid not in asked
    }
