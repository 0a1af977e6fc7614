"""What of a record that hosts have can be believed. Pure.

What comes from a host is a claim. A record from hosts may differ from hosts.toml in numbers and
truth values, and in which task runs on which of its hosts. Each text that neither hosts.toml nor
the controller's own record of the run has at the same key is a difference, which a person has to
see first: commands, variables, names of secrets, targets of [notify], paths, patterns. So is each
text that it leaves out, and each host that the controller's own record does not use.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy.config.models import Table
from tfdeploy.errors import PlanError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line, mask_urls
from tfdeploy.planning import frameworks, trials

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.run import Run

    Text = tuple[str, str]  # a key's path, and its value as JSON
    Entry = tuple[str, object, bool]  # a key's path, its value, and whether that is a text

# Keys of a host that hosts.toml decides, whatever a record says.
HOST_KEYS = (
    *("transport", "hostname", "user", "port", "identity_file", "proxy_jump", "python"),
    *("directory", "shared_fs"),
)
# Keys that are not compared: hosts.toml decides them, or they are compared in another form.
NOT_COMPARED = {"file", "hosts", "source", "ssh_config", "keep_connections_s", "trials"}
# What `start` reads off the scripts, unless hosts.toml has it.
OF_SCRIPTS = {
    *(("training.imports", json.dumps(each)) for each in frameworks.FRAMEWORKS.values()),
    *(("training.ends_with", json.dumps(each)) for each in ("chief", "all")),
}
IMPORTS = "training.imports"
# A URL that can only be a webhook: no shell or program runs a part of it.
WEBHOOK = re.compile(r"""\[?"https?://[^\s;&|$`\\<>(){}'"]+"\]?""")
HOSTS_TOML, OWN_RECORD = "hosts.toml", "the controller's own record"
MAX_SHOWN = 10_000  # characters of differences that a person can read


@dataclass(frozen=True)
class Difference:
    """What a record says at a key, and the texts that the controller `has` there, in hosts.toml or
    in its own record. Texts are JSON, so that no control character is printed."""

    key: str
    value: str
    expected: tuple[str, ...]
    has: str = HOSTS_TOML

    def __str__(self) -> str:
        expected = " and ".join(self.expected) or "nothing"
        return f"{escape_line(self.key)} = {self.value}; {self.has} has {expected}"


@dataclass(frozen=True)
class Vote:
    """Whether enough hosts have the same record, its `holders`. `problem` says why not, "" if they
    do; `is_lost`: nor are they enough among the hosts that have answered."""

    holders: tuple[str, ...]
    problem: str
    is_lost: bool = False

    @classmethod
    def of_known(cls, own_hosts: Collection[str], holders: Sequence[str]) -> Vote:
        """Return the vote of the hosts of the controller's own record about a newer one: more than
        half must have it. One that gives no answer has not agreed."""
        having = [host for host in own_hosts if host in holders]
        return cls(tuple(holders), _too_few(having, own_hosts, "of the controller's own record"))

    @classmethod
    def of_run(
        cls,
        named: Collection[str],
        holders: Sequence[str],
        answered: Collection[str],
        with_another: Collection[str],
    ) -> Vote:
        """Return the vote about a record of a run of which the controller has none.

        Each host that it has `named` and that has `answered` must have it, and more than half of
        these and of the hosts `with_another` record of the run.
        """
        voters = dict.fromkeys((*named, *with_another))
        having = [host for host in voters if host in holders]
        differing = [host for host in named if host in answered and host not in holders]
        problem = _too_few(having, voters, "of the run")
        if differing:
            verb = _verb(differing)
            problem = f"{fold_names(differing)} {verb} another record of it, or none"
        is_lost = len(having) * 2 <= len([host for host in voters if host in answered])
        return cls(tuple(holders), problem, is_lost)


def too_few_for_newest(holders: Sequence[str], hosts: Collection[str]) -> str:
    """Return why a run that nobody has named is not taken for the newest: no more than half of the
    `hosts` of hosts.toml have its record. "" if more do. A record names its own hosts, so that one
    host could say that it alone has run something."""
    return _too_few(holders, hosts, "of hosts.toml")


def differences(claimed: Run, current: Inventory, own: Run | None) -> list[Difference]:
    """Return what a record of a run says that neither hosts.toml, `current`, nor the controller's
    `own` record of the run says at the same key; what it leaves out of the own record, or, if
    there is none, of hosts.toml; and the hosts that it adds to those of the own record."""
    with_trials = _with_points(current) if claimed.inventory.trials.points else current
    written = dict.fromkeys(_texts(with_trials))
    own_texts = {*written, *OF_SCRIPTS}
    if own:
        own_texts |= {*_texts(own.inventory), *_of_run(own), *_of_start(own)}
    found = dict.fromkeys((*_texts(claimed.inventory), *_of_run(claimed)))
    if own:  # a resume keeps them; without an own record only the hosts know them
        found |= dict.fromkeys(_of_start(claimed))
    new = [
        Difference(key, _shown(key, value), tuple(_shown_own(k, v) for k, v in written if k == key))
        for key, value in found
        if (key, value) not in own_texts
    ]
    return [*new, *_left_out(claimed, with_trials, own), *_added_hosts(claimed, own)]


def _left_out(claimed: Run, current: Inventory, own: Run | None) -> Iterator[Difference]:
    """Yield the texts of the own record that a record has nothing for; without an own record, those
    of hosts.toml."""
    names = {host.name for host in claimed.inventory.hosts}
    inventory = own.inventory if own else current
    hosts = tuple(host for host in inventory.hosts if host.name in names)
    expected = dict.fromkeys(_texts(inventory.copy_with({"hosts": hosts})))
    if own:
        expected |= dict.fromkeys((*_of_run(own), *_of_start(own)))
    has = OWN_RECORD if own else HOSTS_TOML
    keys = {path for path, value, _ in _entries(claimed.inventory) if not _is_empty(value)}
    keys |= {key for key, _ in (*_of_run(claimed), *_of_start(claimed))}
    imports = {json.dumps(module) for module in claimed.inventory.training.imports}
    # A start reads the imports off the scripts, unless hosts.toml has them.
    keeps_imports = own or "imports" in current.training.given
    for key, value in expected:
        is_written = value in imports or not keeps_imports if key == IMPORTS else key in keys
        if not is_written:
            yield Difference(key, "nothing", (_shown_own(key, value),), has)


def _added_hosts(claimed: Run, own: Run | None) -> Iterator[Difference]:
    """Yield the hosts of a record that run tasks, or may be given some, and that do not by the
    controller's own record: its hosts can't speak for them."""
    if own:
        names = {host.name for host in own.inventory.hosts}
        for host in claimed.inventory.hosts:
            runs_tasks = host.name in claimed.plan.hosts and host.name not in own.plan.hosts
            if runs_tasks or host.name not in names:
                value = "a host that runs tasks" if runs_tasks else "a host of the run"
                yield Difference(f"hosts.{host.name}", value, (), OWN_RECORD)


def with_own_keys(claimed: Inventory, current: Inventory) -> Inventory:
    """Return a recorded inventory with the keys that hosts.toml decides: how hosts are reached,
    and which folder is the source. hosts.toml must have all of its hosts."""
    hosts = {host.name: host for host in current.hosts}

    def decided(host: Host) -> Host:
        own = hosts[host.name]
        keys = {key: getattr(own, key) for key in HOST_KEYS}
        return host.copy_with({**keys, "address": own.address})

    keys = ("ssh_config", "keep_connections_s", "source")
    of_file = {key: getattr(current, key) for key in keys}
    return claimed.copy_with({**of_file, "hosts": tuple(map(decided, claimed.hosts))})


def known_hosts_only(claimed: Run, current: Inventory) -> Run:
    """Return the run without the names of hosts that hosts.toml does not have."""
    names = {host.name for host in current.hosts}
    left_out, auto = (
        tuple(name for name in listed if name in names)
        for listed in (claimed.left_out, claimed.auto_ports)
    )
    return replace(claimed, left_out=left_out, auto_ports=auto)


def _too_few(having: Sequence[str], voters: Collection[str], whose: str) -> str:
    """Return that no more than half of the voters have a record; "" if more do."""
    if len(having) * 2 > len(voters):
        return ""
    if not having:
        return f"no host {whose} has it"
    return f"only {len(having)} of {len(voters)} hosts {whose} {_verb(having)} it"


def _verb(hosts: Collection[str]) -> str:
    return "has" if len(hosts) == 1 else "have"


def _with_points(current: Inventory) -> Inventory:
    with suppress(PlanError):
        return trials.with_trials(current)
    return current


def _texts(inventory: Inventory) -> Iterator[Text]:
    """Yield the texts of an inventory, and the entries of its tables that users name."""
    return ((path, json.dumps(value)) for path, value, is_text in _entries(inventory) if is_text)


def _entries(inventory: Inventory) -> Iterator[Entry]:
    yield from _of_table(inventory, "", NOT_COMPARED)
    yield from _of_table(inventory.trials, "trials.", {"points"})
    for point in inventory.trials.points:
        for name, value in point.items():
            yield f"trials.params.{name}", value, True
    for host in inventory.hosts:
        yield from _of_table(host, f"hosts.{host.name}.", {"name", "address", *HOST_KEYS})


def _of_table(table: Table, above: str, without: Collection[str] = ()) -> Iterator[Entry]:
    for key in table.key_names():
        if key not in without:
            yield from _of_value(getattr(table, key), above + key)


def _of_value(value: object, path: str, *, is_named: bool = False) -> Iterator[Entry]:
    if isinstance(value, Table):
        yield from _of_table(value, f"{path}.")
    elif isinstance(value, dict):  # users name its entries, so that each name is a text
        for name, each in value.items():
            yield from _of_value(each, f"{path}.{name}", is_named=True)
    elif path == IMPORTS and isinstance(value, tuple):
        yield from ((path, module, True) for module in value)
    else:
        yield path, value, is_named or _has_text(value)


def _has_text(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_text, value))
    return isinstance(value, str)


def _is_empty(value: object) -> bool:
    return value is None or value == ()


def _of_run(run: Run) -> Iterator[Text]:
    if run.words:
        yield "words", json.dumps(run.words)


def _of_start(run: Run) -> Iterator[Text]:
    yield "release", json.dumps(run.release)
    yield "agent", json.dumps(run.agent)
    for place, release in run.data.items():
        yield f"data.{place}.release", json.dumps(release)


def _shown(key: str, value: str) -> str:
    """Return a value of a record as it may be printed: the path of a webhook's URL is its password,
    but what else a person agrees to is seen whole."""
    is_webhook = key.startswith("notify.") and WEBHOOK.fullmatch(value)
    return mask_urls(value) if is_webhook else value


def _shown_own(key: str, value: str) -> str:
    """Return a value of the controller as it may be printed: in [notify], without passwords."""
    return mask_urls(value) if key.startswith("notify.") else value
