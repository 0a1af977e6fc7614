"""What was started: a Run, and its record at home. How it goes is only known on the hosts.

runs/<run>/run.json      releases, agent, and the hosts file's name
runs/<run>/hosts.toml    the inventory as it was asked for, every address resolved
runs/<run>/…             what `collect` brings home
"""

from __future__ import annotations

import json
import secrets
import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy import inventory as inventories
from tfdeploy import plan as plans
from tfdeploy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.inventory import Inventory
    from tfdeploy.plan import Plan

FOLDER = "runs"
# Younger than the first record.
LATER_KEYS: dict[str, Any] = {"auto_ports": [], "launched": "", "data": {}, "sweep": False}


@dataclass(frozen=True)
class Run:
    """One Plan on one Release. `agent` is the version of the agent that started it; the ports of
    the hosts in `auto_ports` were found when it started. `launched` names the start or the resume
    that its tasks are of: whoever stops them stops those of no other. `data` gives the release of
    each data set by its place. One `of_sweep` was made to be measured, and is never meant by
    whoever names no run."""

    id: str
    release: str
    agent: str
    inventory: Inventory
    plan: Plan
    auto_ports: tuple[str, ...] = ()
    launched: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    of_sweep: bool = False

    @property
    def flags(self) -> str:
        """What names this run on tfdeploy's command line."""
        file = self.inventory.file
        here = Path.cwd()
        shown = file.relative_to(here) if file.is_relative_to(here) else file
        hosts = "" if shown == Path("hosts.toml") else f"--hosts {shlex.quote(str(shown))} "
        return f"{hosts}--run {self.id}"

    @property
    def folder(self) -> Path:
        """Where its record and all that is collected lie."""
        return self.inventory.file.parent / FOLDER / self.id


def new_id() -> str:
    """The start in UTC, so that names sort by age: to the second, then two hex digits for its
    256ths, and two by chance against a collision."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond * 256 // 10**6:02x}{secrets.token_hex(1)}"


def save(run: Run) -> None:
    """Write the record, over an older one of a run that goes on. Raises RunError where the folder
    can't be written."""
    record = {
        "release": run.release,
        "agent": run.agent,
        "hosts_file": run.inventory.file.name,
        "auto_ports": list(run.auto_ports),
        "launched": run.launched,
        "data": dict(run.data),
        "sweep": run.of_sweep,
    }
    try:
        make_folder(run.folder.parent)
        run.folder.mkdir(exist_ok=True)
        _write(run.folder / "hosts.toml", inventories.dump(run.inventory))
        _write(run.folder / "run.json", json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise RunError(f"{run.folder} can't be written: {error.strerror}") from None


def make_folder(folder: Path) -> None:
    """One for what tfdeploy writes at home: no git and no release takes it for source, whichever
    hosts file that is of. One that is there already is the user's. Raises OSError."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    (folder / ".gitignore").write_text("*\n")


def _write(file: Path, text: str) -> None:
    """Whole or not at all: a run that goes on has a record already."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text)
    fresh.replace(file)


def load(hosts_file: Path, run_id: str | None = None) -> Run:
    """The named run, or the newest that was started from `hosts_file` and is of no sweep. Raises
    RunError."""
    if not hosts_file.is_file():
        raise RunError(
            f"{hosts_file}: there is no such file", "say --hosts FILE, or go to its folder"
        )
    base = hosts_file.absolute().parent / FOLDER
    chosen = run_id or _newest(base, hosts_file)
    try:
        return read(base / chosen)
    except OSError:
        hint = newest(base) or "nothing was started here"
        raise RunError(f'there is no run "{chosen}" in {base}', hint) from None


def newest(base: Path) -> str:
    """A hint for whoever named one that isn't there; "" where there are none."""
    known = _ids(base)[-3:]
    return f"the newest here are {', '.join(known)}" if known else ""


def read(folder: Path) -> Run:
    """The run whose record lies in the folder. Raises RunError, and OSError where there is none."""
    record = _record(folder)
    folder = folder.absolute()
    hosts_file = folder.parent.parent / record["hosts_file"]
    inventory = inventories.parse((folder / "hosts.toml").read_text(), hosts_file)
    plan = plans.remake(inventory)
    more = (tuple(record["auto_ports"]), record["launched"], record["data"], record["sweep"])
    return Run(folder.name, record["release"], record["agent"], inventory, plan, *more)


def forget(run: Run) -> None:
    """Remove the record of a run that never was, so that it doesn't stand before one that is."""
    for name in ("run.json", "hosts.toml"):
        (run.folder / name).unlink(missing_ok=True)
    run.folder.rmdir()


def _newest(base: Path, hosts_file: Path) -> str:
    for run_id in reversed(_ids(base)):
        with suppress(RunError):  # a record that was cut must not hide the others
            record = _record(base / run_id)
            if record["hosts_file"] == hosts_file.name and not record["sweep"]:
                return run_id
    raise RunError(
        f"no run was started from {hosts_file} yet", "tfdeploy run starts one, or tfdeploy start"
    )


def _record(folder: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((folder / "run.json").read_text())
        named = {key: str(record[key]) for key in ("release", "agent", "hosts_file")}
        return {**LATER_KEYS, **record, **named}
    except (ValueError, TypeError, KeyError):
        raise RunError(
            f"the record of run {folder.name} is broken: {folder / 'run.json'}"
        ) from None


def _ids(base: Path) -> list[str]:
    return sorted(record.parent.name for record in base.glob("*/run.json"))
