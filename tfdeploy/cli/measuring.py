"""The commands that measure trainings: compare, sweep."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli.options import HOSTS, INTERRUPTED, AcceptNew, Hosts, Json, app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.console import Console


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN",
                    help="A run's id, or its folder; LABEL=RUN gives it a name.")],
    hosts: Hosts = HOSTS,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME",
                   help="Another scalar. Default: loss, or the only one that every run has.")]
    = None,
    pattern: Annotated[str | None, typer.Option("--pattern", metavar="REGEX",
                       help="Read the chief's log, not events: (?P<step>…), (?P<loss>…), and "
                       "(?P<time>…) where it tells one.")] = None,
    smooth: Annotated[int | None, typer.Option("--smooth", min=0, metavar="STEPS",
                      help="Running mean over so many steps. Default: a twentieth of the "
                      "longest run.")] = None,
    target: Annotated[float | None, typer.Option("--target", metavar="VALUE",
                      help="Tell when each run first reached it.")] = None,
    picture: Annotated[Path | None, typer.Option("--picture", metavar="FILE",
                       help=".svg or .png. Default: compare.svg, among the runs.")] = None,
    log: Annotated[bool, typer.Option("--log", help="The picture's losses are logarithmic.")]
    = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Show the losses of several collected runs, against step and against time, in a picture."""
    from tfdeploy import curves, documents
    from tfdeploy import picture as pictures
    from tfdeploy.console import Console, document
    from tfdeploy.steps import compare as steps

    picture = picture or steps.picture_of(hosts)
    pictures.checked(picture)
    wanted = curves.log_pattern(pattern) if pattern else None
    seen = steps.compare(hosts, runs, tag=tag, pattern=wanted, smooth=smooth, target=target)
    if not json:
        Console().compared(seen, picture)  # though its picture may fail
    pictures.draw(picture, steps.panels(seen, "y" if log else ""))
    if json:
        document(documents.compared(seen, picture))


@app.command()
def sweep(
    workers: Annotated[str, typer.Option("--workers", metavar="N,N…",
                       help="How many workers, as 1,2,4.")],
    ps: Annotated[str | None, typer.Option("--ps", metavar="N,N…",
                  help="How many ps; 0 is none. Default: 1, or 0 where hosts.toml has none.")]
    = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, max=86400.0, metavar="S",
                       help="How long each run is measured.")] = 60.0,
    examples_per_step: Annotated[int | None, typer.Option("--examples-per-step", min=1, metavar="N",
                                 help="The batch of a step: tell examples a second, too.")] = None,
    synchronous: Annotated[bool, typer.Option("--synchronous",
                           help="A step takes such a batch from every worker.")] = False,
    pattern: Annotated[str | None, typer.Option("--pattern", metavar="REGEX",
                       help=r"Read steps off the chief's log, as 'step (?P<step>\d+)', "
                            "not off TensorBoard events.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR",
                   help="Where record and picture go. Default: sweep, beside the --hosts file.")]
    = None,
    hosts: Hosts = HOSTS,
    accept_new_host_keys: AcceptNew = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Measure short runs with other numbers of ps and workers. Again: what is missing."""
    from tfdeploy import documents, inventory
    from tfdeploy.console import Console, document
    from tfdeploy.steps import sweep as steps

    console = Console(for_json=json)
    asked = inventory.load(hosts)
    folder = (out or asked.file.parent / steps.FOLDER).absolute()
    cells = steps.cells(steps.usual_ps(asked) if ps is None else ps, workers)
    grid = steps.Grid(cells, seconds, pattern, examples_per_step, synchronous)
    with _stopped(console), console.sweeping() as on_begin:
        watcher = steps.Watcher(on_begin, console.cell)
        found = steps.sweep(asked, grid, folder, watcher, accept_new=accept_new_host_keys)
    console.swept(found, folder / steps.PICTURE)
    steps.draw(found, folder / steps.PICTURE)
    if json:
        document(documents.swept(found))
    raise typer.Exit(0 if found.base else 1)


@contextmanager
def _stopped(console: Console) -> Iterator[None]:
    """A sweep that is interrupted has stopped its run before we hear of it."""
    try:
        yield
    except KeyboardInterrupt:
        console.interrupted(
            "interrupted: what ran is stopped, what was measured is kept. Go on with\n"
            f"  tfdeploy {shlex.join(sys.argv[1:])}"
        )
        raise typer.Exit(INTERRUPTED) from None
