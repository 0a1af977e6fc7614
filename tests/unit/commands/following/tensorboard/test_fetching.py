"""Events are fetched again when a run was started again, and after what was mended."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace

import pytest
from support.builders import eventually, make_run
from support.events import NAME, version

from tfdeploy import run as runs
from tfdeploy.commands.following.tensorboard import fetching as module
from tfdeploy.commands.following.tensorboard.fetching import EventFetcher, shown_until
from tfdeploy.errors import AgentError, Cancelled, TransferFailed, Unreachable
from tfdeploy.shared.protocol.events import EventBatch, EventPiece, UnreadableEvents

ENDED = EventBatch([], [], True, True)


def batch(path=NAME, task="worker:0", last=False):
    data = base64.b64encode(zlib.compress(version())).decode()
    return EventBatch([EventPiece(task, path, 0, data)], [], True, last)


class Watcher:
    def __init__(self):
        self.away, self.unreadable = [], []

    def print_events_away(self, error):
        self.away.append(error)

    def print_events_unreadable(self, host, found):
        self.unreadable.append(found.path)


class FakeAgent:
    def __init__(self, host):
        self.host = host


class FakeFleet:
    """Hosts that send the next list of events each time they are asked. A list that does not end
    with the last batch leaves its host active."""

    answers, plans = [], []

    def __init__(self, inventory, version, cancel):
        self.agents = {host.name: FakeAgent(host.name) for host in inventory.hosts}
        self._cancel = cancel

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def follow_events(self, run, present):
        self.plans.append(run.plan.hosts)
        return FakeFollowing(self.answers.pop(0) if self.answers else [], self._cancel)


class FakeFollowing(FakeFleet):
    def __init__(self, events, cancel):
        self._events, self._cancel = events, cancel
        self.is_active = True

    def events(self, deadline):
        while self._events:
            host, event = self._events.pop(0)
            self.is_active = event is not ENDED
            yield host, event
        if self._cancel.wait(0.01):
            raise Cancelled("the fetcher was closed")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Fleet", FakeFleet)
    monkeypatch.setattr(module, "RECORD_S", 0.01)
    monkeypatch.setattr(module, "DISK_RETRY_S", 0.05)
    monkeypatch.setattr(module, "AFTER_START_S", (0.05,))
    monkeypatch.setattr(FakeFleet, "answers", [])
    monkeypatch.setattr(FakeFleet, "plans", [])
    made = make_run(tmp_path, hosts="[hosts.a]\nworkers = 2\n[hosts.b]\nworkers = 1")
    runs.save(made)
    return made


@pytest.fixture
def watcher():
    return Watcher()


@pytest.fixture
def fetcher(run, watcher):
    made = EventFetcher(run, watcher, lambda old: runs.read_folder(old.folder), offline=False)
    made.reports = True
    return made


def copied(fetcher):
    return {file.relative_to(fetcher.copies.folder).as_posix()
            for file in fetcher.copies.folder.rglob(f"*{NAME}*")}  # fmt: skip


@pytest.mark.parametrize("before", [[("a", ENDED)], [("a", batch())]])  # ended; a host was lost
def test_a_run_that_is_started_again_is_fetched_again_by_its_new_plan(run, fetcher, before):
    FakeFleet.answers[:] = [before]
    with fetcher:
        assert eventually(lambda: len(FakeFleet.plans) == 1)
        inventory = run.inventory.copy_with({"hosts": run.inventory.hosts[:1]})
        FakeFleet.answers[:] = [[("a", ENDED)], [("a", batch(task="worker:1"))]]
        plan = runs.placing.make_plan_from_addresses(inventory)
        runs.save(replace(run, inventory=inventory, plan=plan, starts=1))
        assert eventually(lambda: f"worker-1/{NAME}" in copied(fetcher))
        assert FakeFleet.plans == [("a", "b"), ("a",), ("a",)]  # tasks start after the record


def test_a_host_is_asked_again_when_the_disk_has_room_again(fetcher, watcher, monkeypatch):
    write, failures = fetcher.copies.write, [OSError(28, "No space left on device", "x")] * 3

    def limited(host, piece):
        if failures:
            raise failures.pop()
        write(host, piece)

    monkeypatch.setattr(fetcher.copies, "write", limited)
    FakeFleet.answers[:] = [[("a", batch()), ("a", batch())] for _ in range(4)]
    with fetcher:
        assert eventually(lambda: copied(fetcher) == {f"worker-0/{NAME}"})
        assert eventually(lambda: not fetcher.errors)
    assert [type(error) for error in watcher.away] == [TransferFailed]


def test_a_host_that_lies_is_refused(fetcher, watcher):
    FakeFleet.answers[:] = [[("a", batch(path=f"../{NAME}")), ("a", batch()), ("b", batch())]]
    with fetcher:
        assert eventually(lambda: fetcher.looked.is_set())
    assert [type(error) for error in watcher.away] == [AgentError]
    assert copied(fetcher) == {f"worker-0/{NAME}"}  # what b sent


def test_an_odd_name_costs_only_its_file_and_is_reported_once(fetcher, watcher):
    odd = f"my\u00a0logs/{NAME}"
    FakeFleet.answers[:] = [[("a", batch(path=odd)), ("a", batch(path=odd)), ("a", batch())]]
    with fetcher:
        assert eventually(lambda: copied(fetcher) == {f"worker-0/{NAME}"})
    assert watcher.unreadable == [odd]
    assert not fetcher.errors


def test_of_many_unreadable_files_the_first_are_reported(fetcher, watcher):
    found = [UnreadableEvents("worker:0", f"{n}/{NAME}", 0, "is odd") for n in range(200)]
    FakeFleet.answers[:] = [[("a", EventBatch([], found, True, False)), ("b", batch())]]
    with fetcher:
        assert eventually(lambda: fetcher.looked.is_set())
    assert len(watcher.unreadable) == module.MAX_UNREADABLE


def test_errors_can_be_read_while_they_change(fetcher):
    fetcher._fail("a", Unreachable("a", "no answer"))
    for _ in fetcher.errors:
        fetcher._fail("b", Unreachable("b", "no answer"))
    assert fetcher.errors.keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("error", "text"),
    [(TransferFailed("a", "disk full"), " until more can be written"), (AgentError("a", "no"), ""),
     (Unreachable("a", "no answer"), " until it answers")],
)  # fmt: skip
def test_what_is_shown_until_when(error, text):
    assert shown_until(error) == text
