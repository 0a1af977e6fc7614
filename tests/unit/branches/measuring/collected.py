"""Runs as `collect` leaves them on the controller."""

from __future__ import annotations

from support.builders import make_run
from support.events import record, scalar_event, write

from tfdeploy import run as runs

ONE, TWO = "20260101-000000-aaaa", "20260102-000000-bbbb"


def collect_run(folder, run_id, losses, *, project="p", tag="loss", at=1000.0, every=10):
    """Collect a run that reported these losses, one second and `every` steps apart; return its
    folder."""
    base = make_run(folder, run_id=run_id)
    inventory = base.inventory.copy_with({"project": project})
    collected = runs.Run(run_id, base.release, base.agent, inventory, base.plan)
    runs.save(collected)
    events = [record(scalar_event(n * every, at + n, **{tag: v})) for n, v in enumerate(losses)]
    write(collected.folder / "events", *events)
    return collected.folder


def write_log(folder, name, *lines):
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / name).write_text("".join(f"{line}\n" for line in lines))
