"""Take the record of a run from its hosts, if the controller has none or an older one.

Every host of a run has a copy of its record, and each copy is a claim: `claims.py` says which hosts
must have the same one, and what it may say. What does not meet that is used only after a person has
agreed, and nothing is written before. hosts.toml alone decides how a host is reached, which Python
runs on it, and at which address its peers connect to it.
"""

from __future__ import annotations

import re
import shlex
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.commands.plan import addresses
from tfdeploy.commands.records import claims
from tfdeploy.config.overrides import RUN_NAME
from tfdeploy.errors import (
    AgentError,
    ClaimedRecord,
    NewerRun,
    Note,
    OutdatedRecord,
    RunError,
    TfdeployError,
)
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.hosts.fleet import Fleet, answers_of, errors_of
from tfdeploy.planning import placing
from tfdeploy.shared.protocol.runs import KnownRuns, ListRecords, ReadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.run import Run

    # Returns if a person agrees to use a record; else raises it.
    Agree = Callable[[ClaimedRecord], None]

AGENT_VERSION = re.compile(r"[0-9a-f]+")
MAX_RUNS = 100  # an agent lists no more, see agent/runs/run_record.py
OTHER_HINT = "that is more than a person can read: use the controller that started the run"
TERMINAL_HINT = "if it is yours, run the command on a terminal: it asks for the id of the run"


@dataclass(frozen=True, order=True)
class StoredRecord:
    """A record on some host: of the run `id`, after its `starts`-th start, with these contents."""

    id: str
    starts: int
    digest: str


@dataclass(frozen=True)
class RecoveredRun:
    """A run, and the hosts that have this record of it. `older` is the newest run that the
    controller knew before; "" if it knew this one, or none."""

    run: Run
    hosts: tuple[str, ...]
    older: str = ""


class Records:
    """The records that the hosts of hosts.toml have."""

    def __init__(self, fleet: Fleet, inventory: Inventory) -> None:
        outcomes = fleet.outcomes(
            fleet.agents, lambda agent: _ask_records(agent, inventory.project)
        )
        base = inventory.file.parent / runs.FOLDER
        answers = {h: _possible(h, answer, base) for h, answer in answers_of(outcomes).items()}
        self.errors = errors_of(outcomes)
        self.by_host = {host: _stored(answer) for host, answer in answers.items()}
        self.unreadable = _unreadable(answers)
        self.inventory = inventory
        self._fleet = fleet

    def stored(self, run_id: str | None = None) -> list[StoredRecord]:
        """Return all records, or those of one run, the newest first."""
        found = {record for records in self.by_host.values() for record in records}
        return sorted((r for r in found if run_id in (None, r.id)), reverse=True)

    def holders(self, stored: StoredRecord) -> tuple[str, ...]:
        """Return the hosts that have this very record."""
        return tuple(host for host, records in self.by_host.items() if stored in records)

    def with_another(self, stored: StoredRecord) -> list[str]:
        """Return the hosts that have another record of its run, or one that can't be read."""
        having = [host for host, each in self.by_host.items() if stored.id in {r.id for r in each}]
        having += [host for run, host in self.unreadable if run == stored.id]
        return [host for host in having if host not in self.holders(stored)]

    def read(self, stored: StoredRecord) -> Run:
        """Return the run of a record as its text says it. Raises ClaimedRecord if it is invalid."""
        holders, why = self.holders(stored), ""
        for host in holders:
            try:
                return self._read_on(host, stored)
            except TfdeployError as error:  # another host may have what was announced
                why = why or f"{host} has an invalid record of run {stored.id}: {error.message}"
        raise ClaimedRecord(escape_line(why), runs.OTHER_VERSION_HINT, stored.id, holders)

    def _read_on(self, host: str, stored: StoredRecord) -> Run:
        inventory = self.inventory
        answer = self._fleet.agents[host].ask(ReadRecord(inventory.project, stored.id))
        folder = inventory.file.parent / runs.FOLDER / stored.id
        text = runs.RecordText(answer.run, answer.hosts)
        run = runs.from_record(text, folder, inventory.file)
        if answer.digest != stored.digest or not AGENT_VERSION.fullmatch(run.agent):
            raise RunError("its content is not what the host has announced")
        if run.inventory.project != inventory.project:
            raise RunError(f"its project is {run.inventory.project}")
        if run.name and not RUN_NAME.fullmatch(run.name):
            raise RunError(f"its name is {run.name}")
        return run


def recover_record(
    inventory: Inventory, run_id: str | None, missing: RunError, agree: Agree
) -> RecoveredRun:
    """Find a run of which the controller has no record, and write its record: the run `run_id`,
    which the user or the controller's folder names, or the newest that is not found by its id only,
    and of no other hosts.toml of this folder.

    Raises `missing`, with the hosts that did not answer, if no host knows it; ClaimedRecord if it
    can't be believed and nobody agrees; RunError if a host can't read its record.
    """
    if run_id and not runs.ID.fullmatch(run_id):
        raise missing
    voters = () if run_id else [host.name for host in inventory.hosts]
    return _recover(inventory, run_id, voters, missing, agree)


def _recover(
    inventory: Inventory,
    run_id: str | None,
    voters: Collection[str],
    missing: RunError,
    agree: Agree,
) -> RecoveredRun:
    """As `recover_record`; more than half of the `voters` must have the record, if there are any:
    nobody has named the run."""
    with Fleet(inventory) as fleet:
        records = Records(fleet, inventory)
        invalid: list[ClaimedRecord] = []
        lost: list[tuple[StoredRecord, Run, claims.Vote]] = []
        for stored in _wanted(records, run_id):
            try:
                claimed = records.read(stored)
            except ClaimedRecord as error:
                invalid.append(error)
                continue
            if claimed.by_id_only and not run_id:
                continue
            _refuse_unreadable(records, stored, claimed)
            others = records.with_another(stored)
            vote = claims.Vote.of_run(
                claimed.plan.hosts, records.holders(stored), records.by_host, others
            )
            if vote.is_lost:  # by the hosts that have answered; another record may win
                lost.append((stored, claimed, vote))
                continue
            why = vote.problem or (
                claims.too_few_for_newest(vote.holders, voters) if voters else ""
            )
            return _take_unknown(records, stored, claimed, why, agree, run_id)
        if lost:
            of_newest = (each for each in lost if each[0].id == lost[0][0].id)
            stored, claimed, vote = max(of_newest, key=lambda each: len(each[2].holders))
            return _take_unknown(records, stored, claimed, vote.problem, agree, run_id)
        if invalid:
            raise invalid[0]
        _refuse_others_unreadable(records, run_id, missing)
        raise _not_found(missing, records.errors)


def _take_unknown(
    records: Records,
    stored: StoredRecord,
    claimed: Run,
    why: str,
    agree: Agree,
    run_id: str | None,
) -> RecoveredRun:
    """Take the record of a run of which the controller has none; `why` says why too few hosts
    agree. Of a run that nobody has named with `run_id`, the error says how to name it, and names an
    older one: one host must not hide all others."""
    try:
        return _take(records, stored, claimed, why, None, agree)
    except ClaimedRecord as claim:
        if run_id:
            raise
        hint = f"{claim.hint}, or name it: --run {shlex.quote(claim.run)}"
        older = next((each.id for each in records.stored() if each.id < claim.run), "")
        hint += f"; an older run: --run {shlex.quote(older)}" if older else ""
        raise claim.with_hint(hint) from None


def take_newer_record(
    outdated: OutdatedRecord, load_inventory: Callable[[Path], Inventory], agree: Agree
) -> RecoveredRun | None:
    """Replace the controller's record of a run by the newer one of its hosts; return None if
    another command has done it. Raises as `recover_record` and `load_inventory` do; NewerRun if no
    record of a newer run can be read: no command may take the older run for the newest.
    """
    if isinstance(outdated, NewerRun):
        return _recover_newer(outdated, load_inventory(outdated.hosts_file), agree)
    if has_newer_record(outdated):
        return None
    inventory = load_inventory(outdated.hosts_file)
    own = runs.load(outdated.hosts_file, outdated.run)
    with Fleet(inventory) as fleet:
        records = Records(fleet, inventory)
        newer = [*_newer(records, own)]
        votes = [claims.Vote.of_known(own.plan.hosts, records.holders(s)) for s, _ in newer]
        agreed = [(pair, v) for pair, v in zip(newer, votes, strict=True) if not v.problem]
        of_host = [(p, v) for p, v in zip(newer, votes, strict=True) if outdated.host in v.holders]
        if not agreed and not of_host:
            text = f"{outdated.host} says that it has a newer record of run {own.id}, and has none"
            hint = _hint_without(own, [outdated.host])
            raise ClaimedRecord(text, hint, own.id, (outdated.host,))
        (stored, claimed), vote = (agreed or of_host)[0]
        return _take(records, stored, claimed, vote.problem, own, agree)


def has_newer_record(outdated: OutdatedRecord) -> bool:
    """Return whether the controller has a newer record by now, or another one of the same start:
    another command has resumed or scaled the run, or taken its record, meanwhile."""
    run = runs.load(outdated.hosts_file, outdated.run)
    is_other = run.starts == outdated.starts and run.launched != outdated.launched
    return run.starts > outdated.starts or is_other


def _recover_newer(outdated: NewerRun, inventory: Inventory, agree: Agree) -> RecoveredRun:
    missing = RunError(f"run {outdated.run} has no record on the controller", "")
    try:
        voters = [host.name for host in inventory.hosts]
        recovered = _recover(inventory, outdated.run, voters, missing, agree)
    except ClaimedRecord as claim:
        hint = f"{outdated.hint}; {claim.hint}" if claim.hint else outdated.hint
        text = f"{outdated.host}: {outdated.message}, and has no record on the controller: "
        raise ClaimedRecord(text + claim.message, hint, outdated.run, claim.doubtful) from None
    except RunError as error:
        outdated.message += f", and has no record on the controller: {error.message}"
        raise outdated from None
    return replace(recovered, older=outdated.older)


def _wanted(records: Records, run_id: str | None) -> Iterator[StoredRecord]:
    """Yield the records that may be meant, the newest first."""
    base = records.inventory.file.parent
    stored_here = runs.records(base / runs.FOLDER)
    of_others = {id_ for id_, values in stored_here if (base / values["hosts_file"]).is_file()}
    for stored in records.stored(run_id):
        if run_id or stored.id not in of_others:
            if not run_id and records.unreadable and records.unreadable[0][0] > stored.id:
                return  # the newest run is another one
            yield stored


def _newer(records: Records, own: Run) -> Iterator[tuple[StoredRecord, Run]]:
    """Yield the records of a run that are newer than the controller's `own`, the newest first."""
    for stored in records.stored(own.id):
        if stored.starts >= own.starts:
            try:
                claimed = records.read(stored)
            except ClaimedRecord:
                continue
            if claimed.launched != own.launched:
                yield stored, claimed


def _take(
    records: Records,
    stored: StoredRecord,
    claimed: Run,
    why: str,
    own: Run | None,
    agree: Agree,
) -> RecoveredRun:
    """Write the record of a run that its hosts have. `why` says why too few of them agree, and
    `own` is the controller's older one. Raises ClaimedRecord."""
    holders, current = records.holders(stored), records.inventory
    unknown = {host.name for host in claimed.inventory.hosts} - {h.name for h in current.hosts}
    if unknown:
        verb = "has" if len(holders) == 1 else "have"
        text = f"{fold_names(holders)} {verb} a record of run {stored.id}, but "
        text += f"the run uses {fold_names(unknown)}, which {current.file.name} does not have"
        hint = f"add hosts.{min(unknown)} to it"
        raise ClaimedRecord(text, hint, stored.id, holders if why else ())
    differences = claims.differences(claimed, current, own)
    if why or differences:
        agree(_claim(records, stored, why, own, differences))
    run = claims.known_hosts_only(claimed, current)
    inventory = _with_addresses(claims.with_own_keys(run.inventory, current), own)
    run = replace(run, inventory=inventory, plan=placing.make_plan_from_addresses(inventory))
    runs.save(run)
    return RecoveredRun(run, holders)


def _claim(
    records: Records,
    stored: StoredRecord,
    why: str,
    own: Run | None = None,
    differences: Sequence[claims.Difference] = (),
) -> ClaimedRecord:
    """Return the error that says what of a record a person has to agree to."""
    holders = records.holders(stored)
    verb = "has" if len(holders) == 1 else "have"
    kind = "a newer record" if own else "a record"
    text = f"{fold_names(holders)} {verb} {kind} of run {stored.id}"
    differs = f"differs from {claims.OWN_RECORD if own else claims.HOSTS_TOML}:"
    text += f", but {why}" if why else f", which {differs}"
    text += f"; it {differs}" if why and differences else ""
    lines = "".join(f"\n  {each}" for each in differences)
    is_shown = len(lines) <= claims.MAX_SHOWN
    without = _hint_without(own, holders) if why and own else ""
    hint = "; ".join(filter(None, (TERMINAL_HINT if is_shown else OTHER_HINT, without)))
    lines = lines if is_shown else lines[: claims.MAX_SHOWN] + "…"
    doubtful = holders if why else ()
    return ClaimedRecord(text + lines, hint, stored.id, doubtful, can_be_agreed=is_shown)


def _hint_without(own: Run, hosts: Sequence[str]) -> str:
    """Return how to go on without hosts; "" if a run does not use them, or no others."""
    used = [host.name for host in own.inventory.hosts if host.name in hosts]
    if not used or len(used) == len(own.inventory.hosts):
        return ""
    flags = " ".join(f"--without {shlex.quote(host)}" for host in used)
    them = "it" if len(used) == 1 else "them"
    return f"to go on without {them}: tfdeploy resume {own.flags} {flags}"


def _with_addresses(inventory: Inventory, own: Run | None) -> Inventory:
    """Return the inventory with the address of each host: that of the controller's own record, or
    else the one that a start would find."""
    recorded = {host.name: host.address for host in own.inventory.hosts} if own else {}
    hosts = (h.copy_with({"address": recorded.get(h.name) or h.address}) for h in inventory.hosts)
    partly = inventory.copy_with({"hosts": tuple(hosts)})
    found = addresses(partly)
    resolved = (host.copy_with({"address": found[host.name]}) for host in partly.hosts)
    return partly.copy_with({"hosts": tuple(resolved)})


def _unreadable(answers: Mapping[str, KnownRuns]) -> list[tuple[str, str]]:
    """Return the runs whose record a host can't read, and that host, the newest first."""
    found = ((run, host) for host, answer in answers.items() for run in answer.unreadable)
    return sorted((each for each in found if runs.ID.fullmatch(each[0])), reverse=True)


def _refuse_unreadable(records: Records, stored: StoredRecord, claimed: Run) -> None:
    """Raise RunError if a host of a run can't read its record, which others have."""
    for host in claimed.plan.hosts:
        if (stored.id, host) in records.unreadable:
            file = _record_file(records.inventory, host, stored.id)
            message = f"{host} can't read its record of run {stored.id}: {file}"
            source = records.holders(stored)[0]
            raise RunError(message, f"copy that file from {source}, where it is whole")


def _refuse_others_unreadable(records: Records, run_id: str | None, missing: RunError) -> None:
    for run, host in records.unreadable:
        if run_id in (None, run):
            file = _record_file(records.inventory, host, run)
            hint = f"its processes must be ended on {host}; an older run is named with --run"
            raise RunError(f"{missing.message}, and {host} can't read its record: {file}", hint)


def _record_file(inventory: Inventory, host: str, run_id: str) -> str:
    return f"{inventory.host(host).root}/{inventory.project}/runs/{run_id}/record.json"


def _ask_records(agent: Agent, project: str) -> KnownRuns:
    answer = agent.ask(ListRecords(project))
    for run in answer.runs:
        if not runs.ID.fullmatch(run.id):
            raise AgentError(agent.host, f"invalid answer: {run.id!r:.40} is not the id of a run")
    # Each record that it lists may be asked for.
    if len(answer.runs) > MAX_RUNS or len({run.id for run in answer.runs}) < len(answer.runs):
        raise AgentError(agent.host, "invalid answer: too many records, or two of one run")
    return answer


def _possible(host: str, answer: KnownRuns, base: Path) -> KnownRuns:
    """Return the answer without the runs that no controller can have made by now, with a note."""
    named = (*(run.id for run in answer.runs), *filter(runs.ID.fullmatch, answer.unreadable))
    ignored = {run_id for run_id in named if not runs.may_exist(run_id, base)}
    if not ignored:
        return answer
    text = f"ignored run {max(ignored)} of {host}: its date is impossible, or more than a day ahead"
    warnings.warn(text, Note, stacklevel=2)
    possible = [run for run in answer.runs if run.id not in ignored]
    return KnownRuns(possible, [run for run in answer.unreadable if run not in ignored])


def _stored(answer: KnownRuns) -> set[StoredRecord]:
    return {StoredRecord(run.id, run.starts, run.digest) for run in answer.runs}


def _not_found(missing: RunError, errors: Iterable[TfdeployError]) -> RunError:
    silent = [error.names[0] for error in errors if error.names]
    unanswered = f" ({fold_names(silent)} gave no answer)" if silent else ""
    return RunError(f"{missing.message}, and its hosts have no record{unanswered}", missing.hint)
