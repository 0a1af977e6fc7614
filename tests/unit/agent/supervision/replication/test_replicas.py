"""Replicas of the chief's checkpoints and outputs, offered and fetched over real sockets."""

from __future__ import annotations

import errno
import itertools
import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.builders import (
    change_launch,
    eventually,
    heartbeat_server,
    make_heartbeat_settings,
    make_launch,
)
from support.chief import save, seen_by_programs

from tfdeploy.agent import paths
from tfdeploy.agent.outputs import listing
from tfdeploy.agent.supervision.heartbeat import signing
from tfdeploy.agent.supervision.heartbeat.messages import Answer, Offer, OfferedFile
from tfdeploy.agent.supervision.replication import backups, offered_files, replicas
from tfdeploy.agent.supervision.replication.replicas import CheckpointOffer
from tfdeploy.shared import filesystem, records, state_file
from tfdeploy.shared.protocol.outputs import REPLICAS
from tfdeploy.shared.records import OutputSelection
from unit.agent.outputs.test_listing import keras, write

SOON = {"every_s": 0.01, "pause_s": 0.05}


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch):
    monkeypatch.setattr(listing, "POLL_S", 0.0)
    monkeypatch.setattr(listing, "PAUSE_FACTOR", 0)


@contextmanager
def offering_chief(root, clock=None, **changes):
    """Run a chief that offers checkpoints when the test calls `offer.update(server)`.

    Yields its checkpoint `folder`, its heartbeat `server`, its `offer`, and the `launch` of ps:0,
    which keeps a copy."""
    chief = paths.task("p", "r", "worker:0")
    folder = Path(paths.work(chief), "checkpoints")
    folder.mkdir(parents=True)
    settings = {"replicas": ["ps:0"], **changes}
    own = make_launch(heartbeat=make_heartbeat_settings(**settings))
    # Whenever it is asked, no peer has fetched a piece for long.
    clock = clock or itertools.count(1.0, 2 * replicas.FETCH_GAP_S).__next__
    offer = CheckpointOffer(own, chief, clock)
    with heartbeat_server(offer.read, **settings) as (server, client_settings):
        launch = make_launch(job="ps", heartbeat=client_settings)
        yield SimpleNamespace(folder=folder, server=server, offer=offer, launch=launch)


def offered_step(chief):
    offer = chief.server.checkpoint
    return offer and int(offer.name.rpartition("-")[2])


def is_offered(chief, step):
    chief.offer.update(chief.server)
    return offered_step(chief) == step


def test_a_piece_is_read_while_the_folder_is_walked_for_workers_that_start(root, monkeypatch):
    walking, may_end = threading.Event(), threading.Event()

    def walk(self):
        walking.set()
        may_end.wait()

    monkeypatch.setattr(backups.BackupOffer, "update", walk)
    with offering_chief(root) as chief:
        save(chief.folder, 1)
        assert is_offered(chief, 1)
        file = chief.server.checkpoint.files[0].path
        pieces = []
        threads = [
            threading.Thread(target=chief.offer.offer_backup, daemon=True),
            threading.Thread(target=lambda: pieces.append(chief.offer.read(file, 0)), daemon=True),
        ]
        threads[0].start()
        walking.wait()
        threads[1].start()
        is_read = eventually(lambda: pieces)
        may_end.set()
        assert is_read


def replica_dir():
    return Path(paths.replica_dir("p", "r"))


def copied_files():
    """Return the files of the copy and of an incomplete one, or None if they change meanwhile."""
    try:
        files = [path for path in replica_dir().rglob("*") if path.is_file()]
        return {path.relative_to(replica_dir()).as_posix(): path.read_text() for path in files}
    except FileNotFoundError:
        return None


def copy_of(step):
    name = f"model.ckpt-{step}"
    return {
        f"{name}.data-00000-of-00001": f"data {step} 0",
        f"{name}.index": f"index {step}",
        f"{name}.meta": f"meta {step}",
        "checkpoint": f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n',
    }


# Other outputs


@contextmanager
def offering_chief_with_outputs(root, copied_from=""):
    """Run a chief that offers outputs; yields the same as `offering_chief`, with `work`, its own
    directory, and `replica`, that of the copy."""
    chief = paths.task("p", "r", "worker:0")
    os.makedirs(paths.work(chief))
    chief_launch = make_launch(
        heartbeat=make_heartbeat_settings(replicas=["ps:0"]),
        outputs=OutputSelection([[True, "."]], [], copied_bytes=10_000, copied_from=copied_from),
    )
    records.write(paths.launch(chief), records.to_json(chief_launch))
    offer = CheckpointOffer(chief_launch, chief)
    with heartbeat_server(offer.read, replicas=["ps:0"]) as (server, settings):
        launch = make_launch(job="ps", heartbeat=settings)
        replica = Path(paths.work(paths.task("p", "r", REPLICAS)))
        work = Path(paths.work(chief))
        yield SimpleNamespace(work=work, replica=replica, server=server, launch=launch, offer=offer)


def next_list(chief):
    """Return the next list that is announced: two updates found its files unchanged."""
    before = chief.server.outputs
    for _ in range(3):
        chief.offer.update(chief.server)
    assert chief.server.outputs not in (None, before)
    return chief.server.outputs


def test_outputs_of_the_chief_are_copied_and_deleted_with_it(root):
    with offering_chief_with_outputs(root) as chief:
        keras(chief.work / "checkpoints/best.keras")
        write(chief.work, "export/_METADATA", "export/x", "old.csv")
        first = next_list(chief)
        offered_files.fetch_outputs(chief.launch, first)
        assert texts(chief.replica) == texts(chief.work)
        (chief.work / "old.csv").unlink()
        write(chief.work, "new.csv")
        second = next_list(chief)
        offered_files.fetch_outputs(chief.launch, second)
        assert texts(chief.replica) == texts(chief.work)
        units = offered_files.replicated_outputs("p", "r").outputs
        assert [unit.path for unit in units if unit.kind == "folder"] == ["export"]


def test_a_broken_file_does_not_replace_its_copy(root):
    with offering_chief_with_outputs(root) as chief:
        whole = keras(chief.work / "best.keras").read_bytes()
        first = next_list(chief)
        offered_files.fetch_outputs(chief.launch, first)
        (chief.work / "best.keras").write_bytes(whole[:-9])
        offered_files.fetch_outputs(chief.launch, next_list(chief))
    assert (chief.replica / "best.keras").read_bytes() == whole


def test_a_file_that_changed_after_it_was_listed_is_refused(root):
    with offering_chief_with_outputs(root) as chief:
        write(chief.work, "a.csv", "big.bin", text="x" * 20)
        next_list(chief)
        write(chief.work, "a.csv", text="longer than before")
        with pytest.raises(ValueError, match=r"a\.csv has changed"):
            chief.offer._outputs.files.read("a.csv", 0)


def test_a_file_that_keeps_changing_does_not_delay_the_others(root):
    with offering_chief_with_outputs(root) as chief:
        complete = keras(chief.work / "best.keras").read_bytes()
        write(chief.work, "newest.csv")
        offer = list_with(chief, "best.keras", "newest.csv")
        write(chief.work, "newest.csv", text="longer than before")
        with pytest.raises(signing.Untrusted):
            offered_files.fetch_outputs(chief.launch, offer)
    assert (chief.replica / "best.keras").read_bytes() == complete


# An evaluator on another host


def list_with(chief, *names):
    """Return the next announced list, which has these units and no others."""
    offer = next_list(chief)
    units = json.loads(chief.offer.read(offer.name, 0))
    assert {unit["path"] for unit in units} == set(names)
    return offer


def evaluator_of(chief):
    return change_launch(chief.launch, links={"checkpoints": "../../replica"})


def test_an_evaluator_finds_the_chiefs_files_under_the_chiefs_paths(root):
    with offering_chief_with_outputs(root) as chief:
        keras(chief.work / "checkpoints/best.keras")
        write(chief.work, "checkpoints/export/_METADATA", "checkpoints/export/d/x")
        write(chief.work, "elsewhere.csv")
        offer = list_with(chief, "checkpoints/best.keras", "checkpoints/export", "elsewhere.csv")
        offered_files.fetch_outputs(evaluator_of(chief), offer)
    assert texts(replica_dir()) == texts(chief.work / "checkpoints")


def test_an_evaluator_loses_files_that_the_chief_deleted_and_keeps_its_own(root):
    with offering_chief_with_outputs(root) as chief:
        write(chief.work, "checkpoints/1.keras.tmp", "checkpoints/old/_METADATA")
        first = list_with(chief, "checkpoints/1.keras.tmp", "checkpoints/old")
        offered_files.fetch_outputs(evaluator_of(chief), first)
        write(replica_dir(), "eval/events", "checkpoint", "model.ckpt-1.index", text="its own")
        (chief.work / "checkpoints/old/_METADATA").unlink()
        (chief.work / "checkpoints/1.keras.tmp").unlink()
        keras(chief.work / "checkpoints/1.keras")
        offered_files.fetch_outputs(evaluator_of(chief), list_with(chief, "checkpoints/1.keras"))
    own = {"eval/events", "checkpoint", "model.ckpt-1.index"}
    assert {*texts(replica_dir())} == {"1.keras", *own}


def test_a_checkpoint_that_was_an_output_before_it_was_named_stays(root):
    parts = [f"checkpoints/model.ckpt-7{end}" for end in (".data-00000-of-00001", ".index")]
    with offering_chief_with_outputs(root) as chief:
        write(chief.work, *parts)
        before = list_with(chief, "checkpoints/model.ckpt-7")
        write(replica_dir(), *(Path(each).name for each in parts), text="fetched as a checkpoint")
        records.write(paths.replica("p", "r"), ["model.ckpt-7"])
        offered_files.fetch_outputs(evaluator_of(chief), before)
        for each in parts:
            (chief.work / each).unlink()
        write(chief.work, "checkpoints/a.csv")
        offered_files.fetch_outputs(evaluator_of(chief), list_with(chief, "checkpoints/a.csv"))
    assert {*texts(replica_dir())} == {"a.csv", *(Path(each).name for each in parts)}
    assert (replica_dir() / "model.ckpt-7.index").read_text() == "fetched as a checkpoint"


def test_a_model_that_is_the_checkpoint_folder_keeps_the_files_beside_it(root):
    with offering_chief_with_outputs(root) as chief:
        write(chief.work, "checkpoints/_METADATA", "checkpoints/d/x")
        write(replica_dir(), "eval/events", text="its own")
        offered_files.fetch_outputs(evaluator_of(chief), list_with(chief, "checkpoints"))
    assert {*texts(replica_dir())} == {"_METADATA", "d/x", "eval/events"}


def test_the_chiefs_state_file_does_not_replace_that_of_the_replica(root):
    with offering_chief_with_outputs(root) as chief:
        write(chief.work, "checkpoints/checkpoint", "checkpoints/a.csv", text="names nothing")
        write(replica_dir(), "checkpoint", text="names the newest copy")
        offer = list_with(chief, "checkpoints/checkpoint", "checkpoints/a.csv")
        offered_files.fetch_outputs(evaluator_of(chief), offer)
    assert (replica_dir() / "checkpoint").read_text() == "names the newest copy"


def test_without_replicas_only_the_evaluators_folder_is_copied(root):
    with offering_chief_with_outputs(root, copied_from="checkpoints") as chief:
        write(chief.work, "checkpoints/best.csv", "large.csv", "checkpoints.csv")
        offered_files.fetch_outputs(chief.launch, list_with(chief, "checkpoints/best.csv"))
    assert {*texts(chief.replica)} == {"checkpoints/best.csv"}


def texts(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# Fetching


def test_the_newest_checkpoint_is_copied_completely(root):
    with offering_chief(root) as chief:
        save(chief.folder, 1)
        save(chief.folder, 7, keep=[1])
        assert is_offered(chief, 7)
        replicas._fetch_checkpoint(chief.launch, chief.server.checkpoint)
    assert copied_files() == copy_of(7)
    assert state_file.read(os.fspath(replica_dir())) == ["model.ckpt-7"]


def test_a_newer_checkpoint_replaces_the_older_copy(root):
    with offering_chief(root) as chief:
        for step in (1, 7):
            save(chief.folder, step)
            assert is_offered(chief, step)
            replicas._fetch_checkpoint(chief.launch, chief.server.checkpoint)
    assert copied_files() == copy_of(7)


def test_files_of_an_evaluator_in_the_replica_are_kept(root):
    with offering_chief(root) as chief:
        for step in (1, 7):
            save(chief.folder, step)
            assert is_offered(chief, step)
            replicas._fetch_checkpoint(chief.launch, chief.server.checkpoint)
            (replica_dir() / "eval").mkdir(exist_ok=True)
            (replica_dir() / "eval" / "events").write_text("its own")
            (replica_dir() / "best-12.index").write_text("its own")
    own = {"eval/events": "its own", "best-12.index": "its own"}
    assert copied_files() == {**copy_of(7), **own}


def test_an_evaluator_keeps_the_checkpoint_before_because_it_may_be_reading_it(root):
    with offering_chief(root) as chief:
        evaluator = change_launch(chief.launch, links={"checkpoints": "../../replica"})
        for step in (1, 7, 9):
            save(chief.folder, step)
            assert is_offered(chief, step)
            replicas._fetch_checkpoint(evaluator, chief.server.checkpoint)
    assert {name.split(".")[1] for name in copied_files() if name != "checkpoint"} == {
        "ckpt-7",
        "ckpt-9",
    }
    assert state_file.read(os.fspath(replica_dir())) == ["model.ckpt-9", "model.ckpt-7"]


def test_a_large_file_is_fetched_in_pieces(root, tmp_path):
    data = os.urandom(5 * offered_files.PIECE // 2)
    save(tmp_path, 7)
    (tmp_path / "model.ckpt-7.data-00000-of-00001").write_bytes(data)
    with offering_chief(root) as chief:
        # The file `checkpoint` last: it makes the others a checkpoint, which is offered at once.
        for path in [*tmp_path.glob("model.ckpt-7.*"), tmp_path / "checkpoint"]:
            path.rename(chief.folder / path.name)
        assert is_offered(chief, 7)
        replicas._fetch_checkpoint(chief.launch, chief.server.checkpoint)
    assert (replica_dir() / "model.ckpt-7.data-00000-of-00001").read_bytes() == data


def test_a_checkpoint_being_fetched_stays_available_after_its_deletion(root):
    now = [1.0]
    with offering_chief(root, lambda: now[0]) as chief:
        save(chief.folder, 1)
        assert is_offered(chief, 1)
        chief.offer.read("model.ckpt-1.index", 0)
        save(chief.folder, 7)
        for path in chief.folder.glob("model.ckpt-1.*"):
            path.unlink()
        assert not is_offered(chief, 7)
        replicas._fetch_checkpoint(chief.launch, chief.server.checkpoint)
        assert copied_files() == copy_of(1)
        now[0] += 2 * replicas.FETCH_GAP_S
        assert is_offered(chief, 7)


def test_every_new_checkpoint_is_fetched(root):
    with offering_chief(root) as chief:
        client = SimpleNamespace(answer=Answer())
        replicas.start_fetching(chief.launch, client, **SOON)
        for step in (1, 7):
            save(chief.folder, step)
            assert is_offered(chief, step)
            client.answer = Answer(checkpoint=chief.server.checkpoint)
            assert eventually(lambda step=step: copied_files() == copy_of(step))


def test_only_chosen_tasks_fetch(root):
    with offering_chief(root, replicas=["worker:1"]) as chief:
        save(chief.folder, 7)
        assert is_offered(chief, 7)
        client = SimpleNamespace(answer=Answer(checkpoint=chief.server.checkpoint))
        running = threading.active_count()
        replicas.start_fetching(chief.launch, client, **SOON)
        assert threading.active_count() == running


# Offering


def test_new_checkpoints_are_offered_while_the_chief_runs(root):
    with offering_chief(root) as chief:
        chief.offer.start(chief.server)
        for step in (1, 7):
            save(chief.folder, step)
            assert eventually(lambda step=step: offered_step(chief) == step)


def test_nothing_is_offered_without_replicas(root):
    with offering_chief(root, replicas=[]) as chief:
        save(chief.folder, 7)
        running = threading.active_count()
        chief.offer.start(chief.server)
        assert threading.active_count() == running


def open_files(folder):
    """Return the files of a folder that this process keeps open, also deleted ones."""
    paths = [f"/proc/self/fd/{descriptor}" for descriptor in os.listdir("/proc/self/fd")]
    targets = [os.readlink(path) for path in paths if os.path.lexists(path)]
    return {Path(target).name for target in targets if Path(target).parent == folder}


def test_an_offer_changes_nothing_that_programs_see_and_ends_with_the_next(root):
    with offering_chief(root) as chief:
        save(chief.folder, 1)
        before = seen_by_programs(chief.folder)
        assert is_offered(chief, 1)
        assert seen_by_programs(chief.folder) == before
        save(chief.folder, 7)
        assert is_offered(chief, 7)
        assert open_files(chief.folder) == {*copy_of(7)} - {"checkpoint"}
        chief.offer.close()
        assert open_files(chief.folder) == set()


def test_a_file_that_follows_the_state_file_is_offered_too(root):
    with offering_chief(root) as chief:
        save(chief.folder, 7)
        meta = chief.folder / "model.ckpt-7.meta"
        meta.rename(chief.folder / "later")
        assert is_offered(chief, 7)
        (chief.folder / "later").rename(meta)
        assert is_offered(chief, 7)
        assert chief.offer.read(meta.name, 0) == b"meta 7"


@pytest.mark.parametrize(
    "file", ["checkpoint", "../launch.json", "/etc/passwd", "", ".", "model.ckpt-1.index"]
)
def test_only_offered_files_are_read(root, file):
    with offering_chief(root) as chief:
        save(chief.folder, 7)
        assert is_offered(chief, 7)
        with pytest.raises(ValueError, match="is not offered"):
            chief.offer.read(file, 0)


def test_an_offer_is_retried_after_a_failure(root, monkeypatch):
    opens = filesystem.open_regular

    def too_many(path, flags=os.O_NOFOLLOW):
        if path.endswith("checkpoint"):
            return opens(path, flags)
        raise OSError(errno.EMFILE, "Too many open files")

    with offering_chief(root) as chief:
        save(chief.folder, 7)
        with monkeypatch.context() as patches:
            patches.setattr(filesystem, "open_regular", too_many)
            assert not is_offered(chief, 7)
        assert is_offered(chief, 7)


# Failures keep the older copy


def offer_of(name, *files):
    return Offer(name, files=[OfferedFile(path, size) for path, size in files])


def fetch_only_once(monkeypatch, client):
    """Withdraw the offer after the next fetch; the returned event is set then."""
    fetch, fetched = replicas._fetch_checkpoint, threading.Event()

    def fetch_once(launch, offer):
        try:
            fetch(launch, offer)
        finally:
            client.answer = Answer()
            fetched.set()

    monkeypatch.setattr(replicas, "_fetch_checkpoint", fetch_once)
    return fetched


def test_a_failed_fetch_keeps_the_older_copy_and_leaves_no_files_behind(root, monkeypatch):
    with offering_chief(root) as chief:
        save(chief.folder, 1)
        assert is_offered(chief, 1)
        replicas._fetch_checkpoint(chief.launch, chief.server.checkpoint)
        before = copied_files()
        missing = offer_of("model.ckpt-9", ("model.ckpt-1.index", 7), ("model.ckpt-9.index", 7))
        with pytest.raises(signing.Untrusted):
            replicas._fetch_checkpoint(chief.launch, missing)
        client = SimpleNamespace(answer=Answer(checkpoint=missing))
        fetched = fetch_only_once(monkeypatch, client)
        replicas.start_fetching(chief.launch, client, **SOON)
        assert fetched.wait(60)
        assert eventually(lambda: not replica_dir().with_name("incoming-replica").exists())
        assert copied_files() == before


def test_a_file_that_is_shorter_than_announced_is_refused(root):
    with offering_chief(root) as chief:
        save(chief.folder, 7)
        assert is_offered(chief, 7)
        with pytest.raises(ValueError, match="is shorter than announced"):
            replicas._fetch_checkpoint(
                chief.launch, offer_of("model.ckpt-7", ("model.ckpt-7.index", 99))
            )


@pytest.mark.parametrize("name", ["../launch.json", "{}/absolute", "a/b", "", "..", "."])
def test_no_file_is_written_outside_of_the_replica(root, tmp_path, name):
    name = name.format(tmp_path)
    with offering_chief(root) as chief:
        with pytest.raises((ValueError, OSError)):
            replicas._fetch_checkpoint(chief.launch, offer_of("model.ckpt-7", (name, 5)))
        assert [path for path in replica_dir().rglob("*") if path.is_file()] == []
    assert not (tmp_path / "absolute").exists()
