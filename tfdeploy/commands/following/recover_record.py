"""Recover the record of a run from its hosts, if the controller has none or an older one.

Every host of a run has a copy of its record. hosts.toml alone decides how a host is reached and
which Python runs on it. A record is only used if all of the run's hosts that answer have the same
one: a wrong record on one host must not decide what happens on another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.errors import AgentError, NewerRun, OutdatedRecord, RunError, TfdeployError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.hosts.fleet import Fleet, answers_of, errors_of
from tfdeploy.shared.protocol.runs import ListRecords, ReadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.runs import KnownRuns

# Keys of a host that hosts.toml decides, whatever a record says.
HOST_KEYS = (
    "transport", "hostname", "user", "port", "identity_file", "proxy_jump", "python", "directory",
)  # fmt: skip
AGENT_VERSION = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, order=True)
class StoredRecord:
    """A record on some host: of the run `id`, after its `starts`-th start, with these contents."""

    id: str
    starts: int
    digest: str


@dataclass(frozen=True)
class RecoveredRun:
    """A run, the hosts that have this record of it, and those of its hosts that do not."""

    run: Run
    hosts: tuple[str, ...]
    differing: tuple[str, ...] = ()


def recover_record(inventory: Inventory, run_id: str | None, missing: RunError) -> RecoveredRun:
    """Find a run on the hosts and write its record: the run `run_id`, or the newest that is not
    part of a sweep, and of no other hosts.toml of this folder.

    Raises `missing`, with the hosts that did not answer, if no host knows it; RunError if the hosts
    have different records of it, or hosts.toml lacks one of its hosts.
    """
    if run_id and not runs.ID.fullmatch(run_id):
        raise missing
    base = inventory.file.parent
    known = runs.records(base / runs.FOLDER)
    of_others = {id_ for id_, values in known if (base / values["hosts_file"]).is_file()}
    with Fleet(inventory) as fleet:
        outcomes = fleet.outcomes(
            fleet.agents, lambda agent: _ask_records(agent, inventory.project)
        )
        answers = answers_of(outcomes)
        by_host = {host: _stored(answer) for host, answer in answers.items()}
        unreadable = _unreadable(answers)
        records = {r for stored in by_host.values() for r in stored if run_id in (None, r.id)}
        records = records if run_id else {r for r in records if r.id not in of_others}
        for stored in sorted(records, reverse=True):
            if not run_id and unreadable and unreadable[0][0] > stored.id:
                break  # the newest run is another one
            candidate = _fetch(fleet, inventory, stored, by_host)
            _refuse_unreadable(inventory, candidate, unreadable)
            if run_id or (candidate.differing == () and not candidate.run.of_sweep):
                return _save(candidate)
    for run, host in unreadable:
        if run_id in (None, run):
            file = _record_file(inventory, host, run)
            hint = f"its processes must be ended on {host}; an older run is named with --run"
            raise RunError(f"{missing.message}, and {host} can't read its record: {file}", hint)
    raise _not_found(missing, errors_of(outcomes))


def _unreadable(answers: Mapping[str, KnownRuns]) -> list[tuple[str, str]]:
    """Return the runs whose record a host can't read, and that host, the newest first."""
    found = ((run, host) for host, answer in answers.items() for run in answer.unreadable)
    return sorted((each for each in found if runs.ID.fullmatch(each[0])), reverse=True)


def _refuse_unreadable(
    inventory: Inventory, found: RecoveredRun, unreadable: Sequence[tuple[str, str]]
) -> None:
    """Raise RunError if a host of a run can't read its record, which others have."""
    for host in found.differing:
        if (found.run.id, host) in unreadable:
            file = _record_file(inventory, host, found.run.id)
            message = f"{host} can't read its record of run {found.run.id}: {file}"
            raise RunError(message, f"copy that file from {found.hosts[0]}, where it is whole")


def _record_file(inventory: Inventory, host: str, run_id: str) -> str:
    return f"{inventory.host(host).root}/{inventory.project}/runs/{run_id}/record.json"


def has_newer_record(outdated: OutdatedRecord) -> bool:
    """Return whether the controller has a newer record by now, or another one of the same start:
    another command has resumed or scaled the run, or taken its record, meanwhile."""
    run = runs.load(outdated.hosts_file, outdated.run)
    is_other = run.starts == outdated.starts and run.launched != outdated.launched
    return run.starts > outdated.starts or is_other


def take_newer_record(
    outdated: OutdatedRecord, load_inventory: Callable[[Path], Inventory]
) -> RecoveredRun | None:
    """Replace the controller's record of a run by the newer one of its hosts; return None if
    another command has done it. Raises as `recover_record` and `load_inventory` do, and RunError if
    the newest one is that of the controller: two controllers started the run at the same moment.
    """
    if isinstance(outdated, NewerRun):
        return _recover_newer(outdated, load_inventory(outdated.hosts_file))
    if has_newer_record(outdated):
        return None
    missing = RunError(outdated.message, outdated.hint)
    recovered = recover_record(load_inventory(outdated.hosts_file), outdated.run, missing)
    if recovered.run.launched == outdated.launched != "":
        raise _different_records(recovered.run, recovered.hosts, outdated.names)
    return recovered


def _recover_newer(outdated: NewerRun, inventory: Inventory) -> RecoveredRun:
    """Recover a run that is newer than the controller's newest one. Raises NewerRun if it can't be:
    no command may take the older one for the newest."""
    missing = RunError(f"run {outdated.run} has no record on the controller", "")
    try:
        return recover_record(inventory, outdated.run, missing)
    except RunError as error:
        outdated.message += f", and has no record on the controller: {error.message}"
        raise outdated from None


def _save(candidate: RecoveredRun) -> RecoveredRun:
    if candidate.differing:
        raise _different_records(candidate.run, candidate.hosts, candidate.differing)
    runs.save(candidate.run)
    return candidate


def _different_records(run: Run, hosts: Sequence[str], others: Sequence[str]) -> RunError:
    return RunError(
        f"{fold_names(hosts)} and {fold_names(others)} have different records of run {run.id}",
        "use the folder runs/ of the controller that last started it; or start a new run",
    )


def _ask_records(agent: Agent, project: str) -> KnownRuns:
    answer = agent.ask(ListRecords(project))
    for run in answer.runs:
        if not runs.ID.fullmatch(run.id):
            raise AgentError(agent.host, f"invalid answer: {run.id!r:.40} is not the id of a run")
    return answer


def _stored(answer: KnownRuns) -> set[StoredRecord]:
    return {StoredRecord(run.id, run.starts, run.digest) for run in answer.runs}


def _fetch(
    fleet: Fleet,
    inventory: Inventory,
    wanted: StoredRecord,
    by_host: Mapping[str, set[StoredRecord]],
) -> RecoveredRun:
    hosts = tuple(host for host, records in by_host.items() if wanted in records)
    agent = fleet.agents[hosts[0]]
    answer = agent.ask(ReadRecord(inventory.project, wanted.id))
    text = runs.RecordText(answer.run, answer.hosts)
    folder = inventory.file.parent / runs.FOLDER / wanted.id
    run = runs.from_record(text, folder, inventory.file)
    if answer.digest != wanted.digest or not AGENT_VERSION.fullmatch(run.agent):
        raise RunError(f"the record of run {wanted.id} on {agent.host} is invalid")
    differing = (host for host in run.plan.hosts if host in by_host and host not in hosts)
    merged = replace(run, inventory=_merge_inventory(run.inventory, inventory))
    return RecoveredRun(merged, hosts, tuple(differing))


def _merge_inventory(recorded: Inventory, current: Inventory) -> Inventory:
    """Return the recorded inventory, with the keys that hosts.toml decides."""
    own = {host.name: {key: getattr(host, key) for key in HOST_KEYS} for host in current.hosts}
    unknown = [host.name for host in recorded.hosts if host.name not in own]
    if unknown:
        raise RunError(
            f"the run uses {fold_names(unknown)}, which {current.file.name} does not have",
            f"add hosts.{unknown[0]} to it",
        )
    hosts = tuple(host.copy_with(own[host.name]) for host in recorded.hosts)
    keys = {"ssh_config": current.ssh_config, "keep_connections_s": current.keep_connections_s}
    return recorded.copy_with({**keys, "source": current.source, "hosts": hosts})


def _not_found(missing: RunError, errors: Iterable[TfdeployError]) -> RunError:
    silent = [error.names[0] for error in errors if error.names]
    unanswered = f" ({fold_names(silent)} gave no answer)" if silent else ""
    return RunError(f"{missing.message}, and its hosts have no record{unanswered}", missing.hint)
