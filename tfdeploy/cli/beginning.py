"""What comes before a hosts.toml: --version, an example of it, and init, which writes one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfdeploy.cli.command import PREPARE, VERBOSE, VERBOSE_HELP, add_command, app
from tfdeploy.cli.options import HOSTS, AcceptNew, exit_if_failed
from tfdeploy.config.hosts_file import VARIABLE, hosts_flag

if TYPE_CHECKING:
    from tfdeploy.commands.init import Draft
    from tfdeploy.init.targets import Target
    from tfdeploy.output.console import Console

NewHosts = Annotated[
    Path,
    typer.Option(
        "--hosts",
        envvar=VARIABLE,
        help="The file to write. It must not exist.",
        metavar="FILE",
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"tfdeploy {version('tfdeploy')}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", metavar="", callback=_print_version,
                       is_eager=True, help="Print the version and exit.")] = False,
    verbose: Annotated[int, typer.Option(*VERBOSE, count=True, show_default=False,
                       help=VERBOSE_HELP)] = 0,
) -> None:  # fmt: skip
    pass


@add_command(PREPARE, "example > hosts.toml")
def example() -> None:
    """Print a hosts.toml that documents every key."""
    from importlib import resources

    sys.stdout.write((resources.files("tfdeploy") / "hosts.example.toml").read_text("utf-8"))


@add_command(
    PREPARE, 'init cpu-01 ml@gpu-01 "gpu-[02-16]"', "init --local", "init gpu-01 --dry-run"
)
def init(
    machines: Annotated[list[str] | None, typer.Argument(
        metavar="[USER@]HOST", help="Hosts as ssh knows them, or several: gpu-[01-16].",
        show_default=False)] = None,
    local: Annotated[bool, typer.Option("--local", help="Use this machine too, without SSH.")]
        = False,
    script: Annotated[Path | None, typer.Option("--script", metavar="FILE",
        help="The training script. Default: train.py, main.py, or the only one in the folder.",
        show_default=False)] = None,
    hosts: NewHosts = HOSTS,
    ssh_config: Annotated[Path | None, typer.Option("--ssh-config", metavar="FILE",
        help="Read this instead of ~/.ssh/config, as ssh -F.", show_default=False)] = None,
    accept_new_host_keys: AcceptNew = False,
    dry_run: Annotated[bool, typer.Option("--dry-run",
        help="Print the file, and write nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes",
        help="Do not ask. Hosts that can't be used are left out, as comments.")] = False,
) -> None:  # fmt: skip
    """Look at hosts and a script, and write a hosts.toml for them. Starts nothing."""
    from tfdeploy.commands import init as command
    from tfdeploy.init import program
    from tfdeploy.output.console import Console
    from tfdeploy.output.plan_output import init_progress, print_draft, print_whole_draft

    if not dry_run:
        command.refuse_existing(hosts)
    found = program.find(hosts.absolute().parent.resolve(), script)
    targets, console = _targets(machines or [], local=local), Console(for_json=dry_run)
    with init_progress(console, len(targets), found.framework):
        draft = command.draft(
            targets,
            found,
            hosts,
            ssh_config=_from_folder(ssh_config, hosts),
            accept_new=accept_new_host_keys,
        )
    if dry_run:
        print_draft(console, draft)
        sys.stdout.write(draft.text)
        exit_if_failed(draft.errors)
        return
    if sys.stdin.isatty() and sys.stderr.isatty() and not yes:
        print_whole_draft(console, draft)
        _ask(console, draft, hosts)
    else:
        print_draft(console, draft)
        _refuse_to_leave_out(console, draft, hosts, yes=yes)
    _write(console, draft, hosts)
    raise typer.Exit(1 if draft.errors else 0)


def _from_folder(file: Path | None, hosts: Path) -> str:
    """Return the path of a file as hosts.toml has it: relative if it is in the same folder."""
    if file is None:
        return ""
    folder, absolute = hosts.absolute().parent, file.absolute()
    return str(absolute.relative_to(folder) if absolute.is_relative_to(folder) else absolute)


def _targets(words: list[str], *, local: bool) -> tuple[Target, ...]:
    """Return the hosts that the user named, or names now at the terminal."""
    from tfdeploy.errors import InventoryError
    from tfdeploy.init import targets

    if not words and not local:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InventoryError(
                "name the hosts, or use this machine alone",
                "tfdeploy init gpu-01 gpu-02, or tfdeploy init --local",
            )
        question = "hosts, such as ml@gpu-01 or gpu-[01-16] (none: this machine)"
        words = typer.prompt(question, default="", show_default=False, err=True).split()
    return targets.parse_targets(words, local=local or not words)


def _ask(console: Console, draft: Draft, hosts: Path) -> None:
    """Print the hosts that are left out, and ask whether to write the file. Raises as `require_yes`
    does."""
    from tfdeploy.errors import FleetError

    if draft.errors:
        console.print_error(FleetError(draft.errors))
    question = f"write {hosts} without them?" if draft.errors else f"write {hosts}?"
    from tfdeploy.cli.questions import require_yes

    require_yes(question, f"{hosts} was not written", default=not draft.errors)


def _refuse_to_leave_out(console: Console, draft: Draft, hosts: Path, *, yes: bool) -> None:
    """Print the hosts that are left out. Raises FleetError unless the user has said --yes."""
    from tfdeploy.errors import FleetError

    if draft.errors and not yes:
        hint = f"nothing was written; --yes writes {hosts} without these hosts"
        raise FleetError(draft.errors, hint)
    if draft.errors:
        console.print_error(FleetError(draft.errors))


def _write(console: Console, draft: Draft, hosts: Path) -> None:
    from tfdeploy.commands import init as command
    from tfdeploy.output.plan_output import print_init_written
    from tfdeploy.trust import store

    command.write(draft)
    store.remember(draft.inventory)  # the user has just made the file
    print_init_written(console, draft, hosts_flag(hosts))
