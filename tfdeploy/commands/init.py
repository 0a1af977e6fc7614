"""`tfdeploy init`: look at machines, and propose a hosts.toml for them. No task is started."""

from __future__ import annotations

import glob
import os
import re
import secrets
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy.commands.plan import address
from tfdeploy.config import inventory
from tfdeploy.errors import AgentError, HostError, InventoryError, TfdeployError, raise_all
from tfdeploy.folders.disk_errors import explain
from tfdeploy.formatting.humanize import escape_line, quote_path
from tfdeploy.hosts.fleet import Fleet, answers_of, errors_of
from tfdeploy.init import document, explore, keras, network, placement, requirements, strategy
from tfdeploy.init.machine import Machine
from tfdeploy.init.program import data_outside
from tfdeploy.init.targets import find_agent_pythons, inventory_of
from tfdeploy.planning import placing
from tfdeploy.planning.frameworks import title
from tfdeploy.transport.ssh import config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.init.document import Proposal
    from tfdeploy.init.program import Program
    from tfdeploy.init.targets import Target


@dataclass(frozen=True)
class Draft:
    """A hosts.toml that is not written yet: its `text`, and the same `inventory`.

    `errors` are of hosts that are left out; `notes` may matter.
    """

    file: Path
    text: str
    inventory: Inventory
    proposal: Proposal
    errors: tuple[TfdeployError, ...]
    notes: tuple[TfdeployError, ...]


def refuse_existing(file: Path) -> None:
    """Raise InventoryError if there is a file already: it may be the user's own work."""
    if os.path.lexists(file):
        raise InventoryError(
            f"{file} exists already, and is never overwritten",
            f"to write another file: --hosts {quote_path(str(file.with_name('other.toml')))}",
        )
    if not file.absolute().parent.is_dir():
        raise InventoryError(f"{file}: there is no folder {file.parent}")


def draft(
    targets: Sequence[Target],
    program: Program,
    file: Path,
    *,
    ssh_config: str = "",
    accept_new: bool = False,
) -> Draft:
    """Look at the hosts and propose a hosts.toml for those that can be used. Raises FleetError if
    none can."""
    hosts, errors = reach(targets, file, ssh_config, accept_new=accept_new)
    with Fleet(hosts, accept_new=accept_new) as fleet:
        recognized = strategy.recognize({p: each.syntax for p, each in program.files.items()})
        need = recognized.keras_2
        by_variable = need is not None and need.by_variable
        more = (keras.PACKAGE,) if by_variable else ()
        explored = explore.explore(fleet, _local_pythons(), program, more)
        errors += errors_of(explored)
        machines = [each for each in explored.values() if isinstance(each, Machine)]
        if not machines:
            raise_all(errors)
        placed = placement.place(recognized.tasks, machines, recognized.most_workers)
        machines, notes = _with_network(fleet, machines, placed.keys)
    needed = requirements.choose(program, machines, file.absolute().parent, keras_2=by_variable)
    proposal = document.Proposal(
        project_name(file), program, recognized, machines, placed, _reasons(errors), ssh_config,
        needed,
    )  # fmt: skip
    text = document.write(proposal)
    loaded = _validated(text, file, machines)
    notes += [TfdeployError(need.message, need.hint)] if need and need.by_import else []
    notes += [*_import_errors(program.framework, machines)]
    notes += _without_environment(file, program.framework, machines)
    notes += requirements.with_cuda(program, machines) if needed else ()
    notes += data_outside(program, file.absolute().parent)
    return Draft(file, text, loaded, proposal, tuple(errors), tuple(notes))


def reach(
    targets: Sequence[Target], file: Path, ssh_config: str, *, accept_new: bool
) -> tuple[Inventory, list[TfdeployError]]:
    """Return an inventory of the hosts that can run the agent, and the errors of the others. Raises
    FleetError if none can."""
    probed = inventory_of(targets, file, ssh_config)
    with Fleet(probed, accept_new=accept_new) as fleet:
        pythons = find_agent_pythons(fleet)
    usable, errors = answers_of(pythons), errors_of(pythons)
    if not usable:
        raise_all(errors)
    hosts = inventory_of(targets, file, ssh_config, usable)
    _refuse_one_machine_twice(hosts)
    return hosts, errors


def write(proposed: Draft) -> None:
    """Write the file: all of it, and only if there is none yet. Raises InventoryError."""
    file = proposed.file
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        partial.write_text(proposed.text, encoding="utf-8")
        _rename_to_new(partial, file)
        for left in file.parent.glob(f".{glob.escape(file.name)}.{'[0-9a-f]' * 8}"):
            left.unlink(missing_ok=True)  # of an init that was killed, or is too late
    except FileExistsError:
        refuse_existing(file)
    except OSError as error:
        raise InventoryError(*explain(error, file)) from None
    finally:
        partial.unlink(missing_ok=True)


def _rename_to_new(partial: Path, file: Path) -> None:
    """Give a file its name. Raises FileExistsError if there is another one, unlike Path.rename."""
    try:
        os.link(partial, file)
    except FileExistsError:
        raise
    except OSError:  # the file system has no hard links
        file.touch(exist_ok=False)
        partial.replace(file)


def _refuse_one_machine_twice(hosts: Inventory) -> None:
    """Raise InventoryError if two names lead to the same sshd: each would take the other's GPUs."""
    first_names: dict[object, str] = {}
    for host in (host for host in hosts.hosts if host.uses_ssh):
        settings = config.resolve(host, hosts)
        jump = (settings.proxy_jump, settings.proxy_command)
        first = first_names.setdefault((settings.hostname, settings.port, *jump), host.name)
        if first != host.name:
            raise InventoryError(
                f"{first} and {host.name} are one machine ({settings.hostname} port "
                f"{settings.port}); name it once"
            )


def _local_pythons() -> list[str]:
    """Return Pythons of this machine that the user runs already: that of an activated environment,
    and the one of tfdeploy."""
    active = os.environ.get("VIRTUAL_ENV")
    return [*([f"{active}/bin/python"] if active else []), sys.executable]


def _without_environment(
    file: Path, framework: str, machines: Sequence[Machine]
) -> list[TfdeployError]:
    """Return a note if this machine lacks the framework, and an environment of the project has
    it."""
    lacks = any(machine.is_local and not machine.framework for machine in machines)
    return inactive_environment(file.absolute().parent, framework) if lacks else []


def inactive_environment(folder: Path, framework: str) -> list[TfdeployError]:
    """Return a note about an environment in the folder that is not run unasked: a clone could have
    brought it along."""
    found = [mark.parents[3] for mark in folder.glob(f"*/lib/python3*/site-packages/{framework}")]
    return [
        TfdeployError(
            f"{escape_line(each.name)} has {title(framework)}, but it is not activated, so it was "
            "not run",
            f"if it is yours: source {quote_path(f'{each.name}/bin/activate')}, and run tfdeploy "
            "init again",
        )
        for each in found[:1]
    ]


def _with_network(
    fleet: Fleet, machines: Sequence[Machine], keys: Mapping[str, placement.Keys]
) -> tuple[list[Machine], list[TfdeployError]]:
    """Return the machines with their ports and addresses, and notes about those that others don't
    reach. A task that is alone needs neither."""
    counts = {machine.name: placement.task_count(keys[machine.name]) for machine in machines}
    if len(machines) == 1 and sum(counts.values()) == 1:
        return [*machines], []
    addresses = {machine.name: _addresses(machine, fleet.inventory) for machine in machines}
    ports = {host: count + 1 for host, count in counts.items()}  # the chief's host has one more
    found = network.find_network(fleet, addresses, ports)
    notes = [_unreached(host, each) for host, each in found.items() if each.problem]
    default = network.HostNetwork()
    with_ports = [
        replace(m, ports=each.ports, address=each.address)
        for m in machines
        for each in [found.get(m.name, default)]
    ]
    return with_ports, [*notes]


def _unreached(host: str, found: network.HostNetwork) -> AgentError:
    hint = f"open its ports ({found.ports}) to the other hosts, or set its address in hosts.toml"
    return AgentError(host, found.problem, hint)


def _addresses(machine: Machine, hosts: Inventory) -> network.Addresses:
    """Return the addresses to try of a machine, the best first."""
    name = () if machine.is_local else (machine.name,)
    default = address(hosts.host(machine.name), hosts)
    return network.Addresses(default, (*name, *machine.addresses))


def project_name(file: Path) -> str:
    """Return the name of the folder of hosts.toml, in the letters that a project may have."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.absolute().parent.name).strip("._-")
    return name if name and name != "agent" else "training"


def _reasons(errors: Sequence[TfdeployError]) -> dict[str, str]:
    return {error.host: error.message for error in errors if isinstance(error, HostError)}


def _import_errors(framework: str, machines: Sequence[Machine]) -> list[TfdeployError]:
    """Return a note for each Python that has the framework, but can't import it."""
    return [
        AgentError(
            machine.name, f"its {title(framework)} can't be imported by {machine.import_error}"
        )
        for machine in machines
        if machine.import_error
    ]


def _validated(text: str, file: Path, machines: Sequence[Machine]) -> Inventory:
    """Load the text as every command will. Raises InventoryError or PlanError."""
    loaded = inventory.parse(text, file)
    defaults = {machine.name: machine.name for machine in machines}
    addresses = {host.name: host.address or defaults[host.name] for host in loaded.hosts}
    placing.make_plan(loaded, addresses)
    return loaded
