"""The limit of open descriptors, which limits the connections of one command."""

from __future__ import annotations

import resource
from contextlib import suppress

MAX_DESCRIPTORS = 1 << 16  # some child processes close every descriptor up to the limit


def max_connections() -> int:
    """Raise the limit of open descriptors as far as allowed, and return how many connections fit:
    half of it stays free for files and child processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
