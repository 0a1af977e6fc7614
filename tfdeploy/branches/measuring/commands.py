"""The commands report, compare and sweep."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import INTERRUPTED, add_command
from tfdeploy.cli.completion import propose_files, propose_runs
from tfdeploy.cli.options import find_runs, load_inventory, open_fleet

if TYPE_CHECKING:
    from tfdeploy.branches.measuring.run_report.facts import RunFacts
    from tfdeploy.branches.measuring.speed.results import Result
    from tfdeploy.run import Run


MEASURE = "Measure"  # the group of these commands in --help
LOG_LINES = 30  # that a report asks of each host


@add_command(MEASURE, "report", "report wide base -o both.html", reads=True)
def report(
    runs: options.Runs = None,
    hosts: options.Hosts = options.HOSTS,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE",
                      help="The file to write. Default: report.html in the folder of the run; of "
                      "several, side-by-side.html in that of the first.", show_default=False,
                      autocompletion=propose_files)] = None,
    offline: Annotated[bool, typer.Option("--offline",
                       help="Do not ask the hosts: use only what was collected.")] = False,
) -> None:  # fmt: skip
    """Write a page about a run, or about several side by side: one file that you can
    send."""
    from tfdeploy.branches.measuring.run_report import page
    from tfdeploy.environments import installation
    from tfdeploy.output.console import Console

    installation.require("plots")
    found = find_runs(hosts, runs, offline=offline)
    name = "report.html" if len(found) == 1 else "side-by-side.html"
    file = output or found[0].folder / name
    page.check_file(file)
    facts = [_gather_facts(run, offline) for run in found]
    page.write(file, page.render(facts), None if output else found[0].open())
    Console().print_text(f"{file}")


def _gather_facts(run: Run, offline: bool) -> RunFacts:
    from tfdeploy.branches.measuring.run_report.facts import gather
    from tfdeploy.commands import status as command
    from tfdeploy.commands.trials import trials_of
    from tfdeploy.errors import RunDeleted
    from tfdeploy.output.console import Console

    try:
        if not offline:
            with open_fleet(run) as fleet:
                return gather(run, command.status(fleet, run, LOG_LINES), trials_of(fleet, run))
    except RunDeleted as deleted:
        Console().print_notes([deleted])
    return gather(run, None, trials_of(None, run))


@add_command(
    MEASURE,
    "compare nightly 20260501-113000-91c4",
    "compare small=RUN large=RUN --tag accuracy",
    "compare 'adam-*'",
)
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN",
                    help="A run's id, name or folder. LABEL=RUN gives it a label; 'NAME*' are all "
                    "runs with such a name.",
                    autocompletion=propose_runs)],
    hosts: options.Hosts = options.HOSTS,
    tag: Annotated[str | None, typer.Option("--tag", metavar="NAME",
                   help="The scalar to compare. Default: loss, Keras's epoch_loss, another "
                   "loss, or the only one that all runs have.")
                   ] = None,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Compare a scalar of collected runs, such as the loss. `report RUN RUN` draws them."""
    from tfdeploy.branches.measuring import compare as command
    from tfdeploy.branches.measuring.output import print_comparison
    from tfdeploy.output.console import Console

    comparison = command.compare(hosts, runs, tag=tag)
    Console(for_json=json).print_result(comparison, print_comparison)


@add_command(MEASURE, "sweep --workers 1,2,4", "sweep --ps 1,2 --workers 2,4,8 --seconds 120")
def sweep(
    workers: Annotated[str, typer.Option("--workers", metavar="N,N…",
                       help="Numbers of workers, for example 1,2,4.")],
    ps: Annotated[str | None, typer.Option("--ps", metavar="N,N…",
                  help="Numbers of ps, for example 0,1. Default: 1, or 0 if hosts.toml has no ps.")]
    = None,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", min=1, max=100,
                       help="How often to measure each of them, in turns.")] = 3,
    seconds: Annotated[int, typer.Option("--seconds", metavar="S", min=1, max=86400,
                       help="Seconds to measure each run.")] = 60,
    synchronous: Annotated[bool, typer.Option("--synchronous",
                           help="Each step takes a batch from every worker.")] = False,
    hosts: options.Hosts = options.HOSTS,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Measure speed with different numbers of ps and workers, in short runs."""
    from tfdeploy.branches.measuring import grid
    from tfdeploy.branches.measuring import sweep as command
    from tfdeploy.branches.measuring.output import print_grid, print_sweep
    from tfdeploy.branches.measuring.speed import report
    from tfdeploy.branches.measuring.speed.results import Sweep
    from tfdeploy.errors import TfdeployError
    from tfdeploy.output.console import Console

    console, inventory = Console(for_json=json), load_inventory(hosts)
    cells = grid.cells(grid.default_ps(inventory) if ps is None else ps, workers)
    settings = grid.Grid(cells, repeats, seconds)
    results: list[Result] = []
    measured = Sweep(results, synchronous)
    print_grid(console, settings)
    code = None
    try:
        for result in command.sweep(inventory, settings):
            console.print_text(report.line(result))
            results.append(result)
    except KeyboardInterrupt:  # the current run was stopped before
        console.print_interrupted("interrupted: the current run is stopped and does not count")
        code = INTERRUPTED
    except TfdeployError:
        print_sweep(console, measured)
        raise
    print_sweep(console, measured)
    console.print_document(report.sweep_document(measured))
    raise typer.Exit(code or (0 if measured.base else 1))
