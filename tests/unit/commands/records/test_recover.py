"""When the controller asks the hosts for a newer record of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.builders import make_inventory

from tfdeploy import run as runs
from tfdeploy.api.opening import NO_QUESTIONS
from tfdeploy.commands.records import recover as module
from tfdeploy.commands.records.recover import _ask_records, has_newer_record
from tfdeploy.errors import AgentError, ClaimedRecord, NewerRun, Note, OutdatedRecord, RunError
from tfdeploy.planning import placing
from tfdeploy.shared.protocol.runs import KnownRun, KnownRuns, ReadRecord, RecordTexts

RUN = "20260101-120000-abcd"
HOST = '[hosts.a]\naddress = "10.0.0.1"\nworkers = 1\n'


@pytest.mark.parametrize(
    ("known", "launched", "newer"),
    [(1, "one", True), (2, "one", False), (2, "another", True), (3, "another", False)],
)
def test_a_record_that_another_command_has_written_meanwhile_is_kept(
    tmp_path, known, launched, newer
):
    file = tmp_path / "hosts.toml"
    file.touch()
    inventory = make_inventory(HOST).copy_with({"file": file})
    plan = placing.make_plan_from_addresses(inventory)
    runs.save(runs.Run(RUN, "f00d", "a9e", inventory, plan, starts=2, launched="one"))
    outdated = OutdatedRecord("a", "outdated", "", RUN, known, file, launched)
    assert has_newer_record(outdated) is newer


@pytest.mark.parametrize(
    "ids", [[RUN, RUN], [f"20260101-120000-{n:04x}" for n in range(101)], ["../x"]]
)
def test_a_host_cannot_have_records_asked_for_without_end(ids):
    class Liar:
        host = "a"

        def ask(self, request):
            return KnownRuns([KnownRun(id_, n, str(n)) for n, id_ in enumerate(ids)])

    with pytest.raises(AgentError, match="invalid answer"):
        _ask_records(Liar(), "p")


FOREVER = ["99991231-235959-ffff", "99999999-999999-ffff"]
HOSTS = """
[hosts.a]
address = "10.0.0.1"
workers = 1
[hosts.b]
address = "10.0.0.2"
workers = 1
"""


def id_in(**ahead):
    return f"{datetime.now(UTC) + timedelta(**ahead):{runs.TIME}}-abcd"


class Host:
    """The agent of a host that has these records, by run."""

    def __init__(self, name, records):
        self.host, self.records = name, records

    def ask(self, request):
        texts = {run_id: RecordTexts(t.run_json, t.hosts_toml) for run_id, t in self.records}
        if isinstance(request, ReadRecord):
            return texts[request.run]
        return KnownRuns([KnownRun(run_id, 1, each.digest) for run_id, each in texts.items()])


class Hosts:
    """The hosts of hosts.toml, in place of a Fleet."""

    def __init__(self, records):
        self.agents = {name: Host(name, records.get(name, [])) for name in "ab"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def outcomes(self, hosts, act):
        return {name: act(self.agents[name]) for name in hosts}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a function that takes the record of a run, or of the newest one, from hosts with these
    runs; each is named with the hosts that it uses."""
    file = tmp_path / "hosts.toml"
    file.touch()
    inventory = make_inventory(HOSTS).copy_with({"file": file})

    def record(run_id, names):
        used = tuple(host for host in inventory.hosts if host.name in names)
        part = inventory.copy_with({"hosts": used})
        plan = placing.make_plan_from_addresses(part)
        return run_id, runs.to_record(runs.Run(run_id, "f00d", "a9e", part, plan, launched=names))

    def recover(having, run_id=None):
        records = {host: [record(*each) for each in listed] for host, listed in having.items()}
        monkeypatch.setattr(module, "Fleet", lambda _: Hosts(records))
        monkeypatch.setattr(module, "addresses", lambda i: {h.name: h.address for h in i.hosts})
        missing = RunError("no run", "")
        return module.recover_record(inventory, run_id, missing, NO_QUESTIONS.claim).run.id

    return recover


@pytest.mark.parametrize(
    "impossible", [*FOREVER, id_in(days=2)], ids=["far", "no date", "two days ahead"]
)
def test_a_run_that_nobody_can_have_started_by_now_is_ignored(project, impossible):
    having = {"a": [(impossible, "a"), (RUN, "ab")], "b": [(RUN, "ab")]}
    with pytest.warns(Note, match=f"ignored run {impossible} of a: "):
        assert project(having) == RUN
    with pytest.warns(Note), pytest.raises(RunError, match="no run, and its hosts have no record"):
        project(having, impossible)


def test_a_clock_may_be_behind_those_that_made_the_newest_runs(tmp_path):
    for run_id in FOREVER:
        assert not runs.may_exist(run_id, tmp_path)
    assert runs.may_exist(id_in(hours=23), tmp_path)
    later = id_in(days=30)
    assert not runs.may_exist(later, tmp_path)
    (tmp_path / later).mkdir()
    (tmp_path / later / "run.json").touch()
    assert runs.may_exist(id_in(days=30, hours=1), tmp_path)


def test_one_host_of_two_cannot_say_which_run_is_the_newest(project, tmp_path):
    forged = id_in()
    having = {"a": [(forged, "a"), (RUN, "ab")], "b": [(RUN, "ab")]}
    with pytest.raises(ClaimedRecord, match="but only 1 of 2 hosts of hosts") as caught:
        project(having)
    assert f"or name it: --run {forged}; an older run: --run {RUN}" in caught.value.hint
    assert not (tmp_path / "runs").exists()
    assert project(having, forged) == forged  # whoever names it has agreed


def test_a_newer_run_that_one_host_of_two_names_is_not_taken_over_the_known_one(project, tmp_path):
    project({"a": [(RUN, "ab")], "b": [(RUN, "ab")]})
    file, forged = tmp_path / "hosts.toml", id_in()
    with pytest.raises(ClaimedRecord):
        project({"a": [(forged, "a")]})
    outdated = NewerRun("a", "it has a newer run", "name one", forged, RUN, file)
    inventory = runs.load(file).inventory
    with pytest.raises(ClaimedRecord, match="only 1 of 2 hosts of hosts") as caught:
        module.take_newer_record(outdated, lambda _: inventory, NO_QUESTIONS.claim)
    assert caught.value.doubtful == ("a",)  # so that commands that only read go on without it
    assert runs.load(file).id == RUN


def test_the_only_host_of_a_run_cannot_extend_it_to_others(project, tmp_path):
    file, own = tmp_path / "hosts.toml", project({"a": [(RUN, "a")]}, RUN)
    with pytest.raises(ClaimedRecord):
        project({"a": [(RUN, "ab")]}, RUN)  # and now the host has this newer record
    outdated, inventory = OutdatedRecord("a", "newer", "", own, 0, file, "a"), make_inventory(HOSTS)
    current = inventory.copy_with({"file": file})
    with pytest.raises(ClaimedRecord, match=r"\n  hosts\.b = a host that runs tasks; the con"):
        module.take_newer_record(outdated, lambda _: current, NO_QUESTIONS.claim)
    assert runs.load(file).plan.hosts == ("a",)
