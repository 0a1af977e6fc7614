"""Copies of event files: what they start with, and what is fetched for them."""

from __future__ import annotations

import os
from collections import namedtuple

import pytest
from support.builders import make_run
from support.events import NAME, scalar, version

from tfdeploy.commands.following.tensorboard import fetching as module
from tfdeploy.commands.following.tensorboard import hparams
from tfdeploy.commands.following.tensorboard.fetching import EventCopies
from tfdeploy.errors import TransferFailed
from tfdeploy.results import events_and_logs
from tfdeploy.shared.protocol.reports import NewEvents, StateChange
from unit.output.samples import make_report

HOSTS = "[hosts.a]\nworkers = 2\n[hosts.b]\nps = 1"
Agent = namedtuple("Agent", "host is_current")
NEW, OLDER = Agent("a", True), Agent("a", False)


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path, hosts=HOSTS)


@pytest.fixture
def copies(run):
    return EventCopies(run)


@pytest.fixture
def fetched(monkeypatch):
    """The arguments of what is fetched."""
    calls = []
    monkeypatch.setattr(module, "run_parts", lambda agent, parts: parts[0]._fetch(None))
    for name in ("fetch_event_files", "fetch_all_events"):
        monkeypatch.setattr(events_and_logs, name, lambda *_, **named: calls.append(named))
    return calls


def test_what_collect_has_fetched_is_taken_over_if_it_is_more(run, copies):
    collected = run.folder / "events" / NAME
    collected.parent.mkdir(parents=True)
    collected.write_bytes(version() + scalar(1, 1.0))
    copies.prepare()
    assert copies.counts() == {"worker:0": (1, collected.stat().st_size)}
    collected.write_bytes(version())
    copies.prepare()
    assert (copies.folder / "worker-0" / NAME).read_bytes() == version() + scalar(1, 1.0)


def test_a_trial_is_shown_once_although_its_slot_and_collect_have_its_events(tmp_path, fetched):
    top = "[trials]\npoints = [{lr = '0.1'}, {lr = '0.2'}]\n"
    run = make_run(tmp_path, hosts=HOSTS, top=top)
    copies, path = EventCopies(run), f"trials/1/{NAME}"
    collected = run.folder / "events" / path
    collected.parent.mkdir(parents=True)
    collected.write_bytes(version() + scalar(1, 1.0))
    copies.prepare()
    copies.update(NEW, NewEvents({"work": {path: 1}}, "worker:1"))
    (call,) = fetched
    assert (call["dest"].path / path).read_bytes() == collected.read_bytes()
    assert [*copies.folder.rglob(hparams.NAME)] == [(copies.folder / path).parent / hparams.NAME]
    assert copies.counts() == {"trials": (1, collected.stat().st_size)}


def test_links_among_the_copies_are_deleted(copies, tmp_path):
    folder = copies.folder / "worker-0"
    folder.mkdir(parents=True)
    (tmp_path / "other").write_text("x")
    os.symlink(tmp_path / "other", folder / NAME)
    copies.prepare()
    assert not (folder / NAME).is_symlink()
    assert copies.counts() == {}


def test_only_what_a_host_has_named_is_fetched(copies, fetched):
    copies.update(NEW, NewEvents({"/w": [NAME]}, "worker:1"))
    copies.update(NEW, StateChange(make_report(task="worker:1")))
    [call] = fetched
    assert call["folders"] == {"/w": [NAME]}
    assert call["dest"].path == copies.folder / "worker-1"


def test_of_an_older_agent_everything_is_fetched_when_a_state_changes(run, copies, fetched):
    copies.update(OLDER, StateChange(make_report(task="worker:1")))
    assert [str(call["placement"].task) for call in fetched] == ["worker:1"]


def test_nothing_is_fetched_while_the_disk_is_almost_full(copies, fetched, monkeypatch):
    monkeypatch.setattr(module, "FREE_BYTES", 1 << 62)
    with pytest.raises(TransferFailed, match="MB are free on the disk"):
        copies.update(NEW, NewEvents({"/w": [NAME]}, "worker:1"))
    assert fetched == []
