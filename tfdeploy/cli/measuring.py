"""The commands that show and measure training: tensorboard, report, compare, sweep."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli import options
from tfdeploy.cli.command import INTERRUPTED, MEASURE, WATCH, add_command
from tfdeploy.cli.completion import propose_files, propose_runs
from tfdeploy.cli.options import find_run, load_inventory, open_fleet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.experiments.run_report.facts import RunFacts
    from tfdeploy.experiments.speed.results import Result
    from tfdeploy.run import Run


LOG_LINES = 30  # that a report asks of each host
Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN",
        help="A run's id or name; several are shown side by side. Default: the newest run.",
        show_default=False,
        autocompletion=propose_runs,
    ),
]


@add_command(WATCH, "tensorboard", "tensorboard wide base", "tensorboard --port 6007 --open")
def tensorboard(
    runs: Runs = None,
    hosts: options.Hosts = options.HOSTS,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, metavar="PORT",
                    help="The port of this machine. Default: 6006, or the next one that is free.")]
    = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
    = False,
    offline: Annotated[bool, typer.Option("--offline",
                       help="Do not ask the hosts: show only what was fetched.")] = False,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Show the events of runs in TensorBoard on this machine, as their tasks write them."""
    from tfdeploy.commands.following.tensorboard.board import EventBoard
    from tfdeploy.environments import installation
    from tfdeploy.output import documents
    from tfdeploy.output.console import Console
    from tfdeploy.output.experiment_output import (
        print_board,
        print_events_away,
        print_starting_board,
    )
    from tfdeploy.output.run_events import print_host_back

    installation.require("tensorboard")
    found, console = _find_runs(hosts, runs, offline), Console(for_json=json)
    watcher = partial(print_events_away, console), partial(print_host_back, console)
    with EventBoard(found, *watcher, _reload, port, offline=offline) as board:
        print_starting_board(console, board)
        board.look()
        url = board.url()
        print_board(console, board, url)
        console.print_document(documents.tensorboard_document(board, url))
        if open_browser:
            import webbrowser

            webbrowser.open(url)
        try:
            board.wait()
        except KeyboardInterrupt:  # the way in which it ends
            raise typer.Exit from None


@add_command(MEASURE, "report", "report wide base -o both.html")
def report(
    runs: Runs = None,
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
    from tfdeploy.environments import installation
    from tfdeploy.experiments.run_report import page
    from tfdeploy.output.console import Console

    installation.require("plots")
    found = _find_runs(hosts, runs, offline)
    name = "report.html" if len(found) == 1 else "side-by-side.html"
    file = output or found[0].folder / name
    page.check_file(file)
    facts = [_gather_facts(run, offline) for run in found]
    page.write(file, page.render(facts), None if output else found[0].open())
    Console().print_text(f"{file}")


def _find_runs(hosts: Path, names: Sequence[str] | None, offline: bool) -> list[Run]:
    """Return each run once; with `offline` from its record on the controller only."""
    from tfdeploy import run as runs

    load = runs.load if offline else find_run
    found = [load(hosts, name) for name in names] if names else [load(hosts, None)]
    return list({run.id: run for run in found}.values())


def _reload(run: Run) -> Run:
    """Return a run as its last start has planned it. Raises NotTrusted: nobody can be asked."""
    from tfdeploy.run import read_folder
    from tfdeploy.trust import store

    found = read_folder(run.folder)
    store.refuse_untrusted(found.inventory, f"the record of run {found.id}", found.flags)
    return found


def _gather_facts(run: Run, offline: bool) -> RunFacts:
    from tfdeploy.commands import status as command
    from tfdeploy.commands.trials import trials_of
    from tfdeploy.errors import RunDeleted
    from tfdeploy.experiments.run_report.facts import gather
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
    "compare small=RUN large=RUN --tag accuracy --target 0.9",
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
    smooth: Annotated[int | None, typer.Option("--smooth", min=0, metavar="STEPS",
                      help="Steps of the running mean. Default: 1/20 of the longest run.")] = None,
    target: Annotated[float | None, typer.Option("--target", metavar="VALUE",
                      help="Show when each run first reached this value.")] = None,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Compare a scalar of collected runs, such as the loss. `report RUN RUN` draws them."""
    from tfdeploy.experiments import compare as command
    from tfdeploy.output.console import Console
    from tfdeploy.output.experiment_output import print_comparison

    comparison = command.compare(hosts, runs, tag=tag, smooth=smooth, target=target)
    Console(for_json=json).print_result(comparison, print_comparison)


def _parse_seconds(text: str) -> float:
    """Return the seconds. The help of typer's own range is so wide that it cuts option names."""
    with suppress(ValueError):
        if 1 <= float(text) <= 86400:
            return float(text)
    raise typer.BadParameter(f"found {text}, expected a number from 1 to 86400")


@add_command(MEASURE, "sweep --workers 1,2,4", "sweep --ps 1,2 --workers 2,4,8 --seconds 120")
def sweep(
    workers: Annotated[str, typer.Option("--workers", metavar="N,N…",
                       help="Numbers of workers, for example 1,2,4.")],
    ps: Annotated[str | None, typer.Option("--ps", metavar="N,N…",
                  help="Numbers of ps, for example 0,1. Default: 1, or 0 if hosts.toml has no ps.")]
    = None,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", min=1, max=100,
                       help="How often to measure each of them, in turns.")] = 3,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", parser=_parse_seconds,
                       help="Seconds to measure each run, from 1 to 86400.")] = 60.0,
    synchronous: Annotated[bool, typer.Option("--synchronous",
                           help="Each step takes a batch from every worker.")] = False,
    hosts: options.Hosts = options.HOSTS,
    accept_new_host_keys: options.AcceptNew = False,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Measure speed with different numbers of ps and workers, in short runs."""
    from tfdeploy.errors import TfdeployError
    from tfdeploy.experiments import grid
    from tfdeploy.experiments import sweep as command
    from tfdeploy.experiments.speed import report
    from tfdeploy.experiments.speed.results import RUNNING, Sweep
    from tfdeploy.output.console import Console
    from tfdeploy.output.experiment_output import print_grid, print_sweep

    console, inventory = Console(for_json=json), load_inventory(hosts)
    cells = grid.cells(grid.default_ps(inventory) if ps is None else ps, workers)
    settings = grid.Grid(cells, repeats, seconds)
    results: list[Result] = []
    measured = Sweep(results, synchronous, any(host.chief for host in inventory.hosts))
    print_grid(console, settings)
    code = None
    try:
        for result in command.sweep(inventory, settings, accept_new=accept_new_host_keys):
            console.print_text(report.line(result))
            results += [result] if result.result != RUNNING else []
    except KeyboardInterrupt:  # the current run was stopped before
        console.print_interrupted("interrupted: the current run is stopped and does not count")
        code = INTERRUPTED
    except TfdeployError:
        print_sweep(console, measured)
        raise
    print_sweep(console, measured)
    console.print_document(report.sweep_document(measured))
    raise typer.Exit(code or (0 if measured.base else 1))
