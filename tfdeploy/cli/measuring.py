"""The commands that measure trainings: compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfdeploy.cli.options import HOSTS, Hosts, Json, app


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
    picture: Annotated[Path, typer.Option("--picture", metavar="FILE", help=".svg or .png.")]
    = Path("compare.svg"),
    log: Annotated[bool, typer.Option("--log", help="The picture's losses are logarithmic.")]
    = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Show the losses of several collected runs, against step and against time, in a picture."""
    from tfdeploy import curves, documents
    from tfdeploy import picture as pictures
    from tfdeploy.console import Console, document
    from tfdeploy.steps import compare as steps

    pictures.checked(picture)
    wanted = curves.log_pattern(pattern) if pattern else None
    seen = steps.compare(hosts, runs, tag=tag, pattern=wanted, smooth=smooth, target=target)
    pictures.draw(picture, steps.panels(seen, "y" if log else ""))
    if json:
        document(documents.compared(seen, picture))
    else:
        Console().compared(seen, picture)
