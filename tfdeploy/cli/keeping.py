"""The commands about all that the hosts hold: runs, prune."""

from __future__ import annotations

from typing import Annotated

import typer

from tfdeploy.cli.options import HOSTS, Hosts, Json, app, exit_with


@app.command()
def runs(hosts: Hosts = HOSTS, json: Json = False) -> None:
    """Show every run that the hosts hold, and the room that it takes there."""
    from tfdeploy import documents, inventory
    from tfdeploy.console import Console, document
    from tfdeploy.fleet import Fleet
    from tfdeploy.steps import runs as steps

    asked = inventory.load(hosts)
    with Fleet(asked) as fleet:
        seen = steps.runs(fleet, asked)
    if json:
        document(documents.runs(seen))
    else:
        Console().runs(seen)
    exit_with(seen.errors)


@app.command()
def prune(
    hosts: Hosts = HOSTS,
    keep: Annotated[int, typer.Option("--keep", min=0, metavar="N",
                    help="The newest N runs and N releases stay.")] = 5,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it. Nothing is touched.")]
    = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Remove old runs and releases from the hosts, none that is live. Nothing here is touched."""
    from tfdeploy import documents, inventory
    from tfdeploy.console import Console, document
    from tfdeploy.fleet import Fleet
    from tfdeploy.steps import prune as steps
    from tfdeploy.steps.runs import runs as look

    asked = inventory.load(hosts)
    console = Console(for_json=json)
    with Fleet(asked) as fleet:
        seen = look(fleet, asked)
        going = steps.weighed(fleet, asked.project, steps.choose(seen.disks, keep, keep))
        console.going(seen, going)
        done = None if dry_run else steps.prune(fleet, asked.project, going)
    console.pruned(going, done)
    if json:
        document(documents.pruned(seen, going, done))
    exit_with([*seen.errors, *(done.errors if done else ())])
