"""How often, and when, a handshake is tried again that sshd has dropped, as it does above
MaxStartups."""

from __future__ import annotations

import random
import time

ATTEMPTS = 4


def wait_before_retry(attempt: int) -> None:
    """Wait after the `attempt`-th attempt, from 1 on. The jitter spreads the retries of many
    hosts."""
    time.sleep(random.uniform(0.2, 0.6) * 2**attempt)
