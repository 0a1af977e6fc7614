"""Some hosts of a training without a network for 30 s: it continues with few restarts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from support.machines import MACHINES

from faults import table

if TYPE_CHECKING:
    from support.sites import Site

CUT_S = 30.0


def cut_off_for_a_while(site: Site, chief: str, cut: tuple[str, ...], kind: str) -> int:
    """Cut these hosts off, and wait until the chief, on the host `chief`, has made a further step.

    `kind` is the kind of training, for the table. Return how many steps were lost.
    """
    restores, restarts = len(site.restored_steps(chief, "chief")), _restarts(site)
    for host in cut:
        MACHINES[host].cut_network()
    time.sleep(CUT_S)
    steps = site.steps(chief, "chief")
    for host in cut:
        MACHINES[host].restore_network()
    healed_at = time.monotonic()
    site.until(lambda: len(site.steps(chief, "chief")) > len(steps), "further steps")
    recovered_s = time.monotonic() - healed_at
    has_restored = len(site.restored_steps(chief, "chief")) > restores
    lost = site.steps_lost(chief, "chief", steps[-1]) if has_restored else 0
    site.wait_for_step(chief, "chief", beyond=steps[-1])
    counts = {task: count - restarts[task] for task, count in _restarts(site).items()}
    assert max(counts.values()) <= 2, counts
    result = f"{kind}, {sum(counts.values())} restarts"
    fault = f"39 no network for 30 s: half of the hosts ({result})"
    table.record(fault, None, recovered_s, lost, site.startup_s)
    return lost


def _restarts(site: Site) -> dict[str, int]:
    return {task: fields["restarts"] for task, fields in site.tasks().items()}
