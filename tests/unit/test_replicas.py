"""Copies of the chief's newest checkpoint on other hosts: offered and fetched over real sockets."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfdeploy.agent import paths, replicas, state_file, wire
from tfdeploy.agent.replicas import Offer
from unit.made import answering, circle, eventually, launch
from unit.test_checkpoints import save


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(replicas, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(replicas, "FAILED_PAUSE_S", 0.05)
    monkeypatch.setattr(replicas, "FETCH_GAP_S", 0.3)


@contextmanager
def offered(root, **changes):
    """The chief's checkpoint directory, its beacon, and ps:0, which is to keep a copy."""
    chief = paths.task("p", "r", "worker:0")
    folder = Path(paths.work(chief), "checkpoints")
    folder.mkdir(parents=True)
    wanted = {"replicas": ["ps:0"], **changes}
    offer = Offer(launch(circle=circle(**wanted)), chief)
    with answering(offer.read, **wanted) as (beacon, known):
        offer.begin(beacon)
        yield SimpleNamespace(
            folder=folder, beacon=beacon, offer=offer, keeper=launch(job="ps", circle=known)
        )


def is_offered(there, step):
    return eventually(lambda: (there.beacon.checkpoint or {}).get("step") == step)


def home():
    return Path(replicas.folder("p", "r"))


def copied():
    """The files of the copy, those that are on their way among them; None while they move."""
    try:
        files = [path for path in home().rglob("*") if path.is_file()]
        shown = [path for path in files if path.name != replicas.COPIED]
        return {path.relative_to(home()).as_posix(): path.read_text() for path in shown}
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


# Fetched


def test_the_newest_checkpoint_is_copied_whole(root):
    with offered(root) as there:
        save(there.folder, 1)
        save(there.folder, 7, keep=[1])
        assert is_offered(there, 7)
        replicas._fetch(there.keeper, there.beacon.checkpoint)
    assert copied() == copy_of(7)
    assert state_file.read(os.fspath(home())) == ["model.ckpt-7"]


def test_a_newer_one_takes_its_place(root):
    with offered(root) as there:
        for step in (1, 7):
            save(there.folder, step)
            assert is_offered(there, step)
            replicas._fetch(there.keeper, there.beacon.checkpoint)
    assert copied() == copy_of(7)


def test_what_an_evaluator_writes_beside_them_stays(root):
    with offered(root) as there:
        for step in (1, 7):
            save(there.folder, step)
            assert is_offered(there, step)
            replicas._fetch(there.keeper, there.beacon.checkpoint)
            (home() / "eval").mkdir(exist_ok=True)
            (home() / "eval" / "events").write_text("its own")
            (home() / "best-12.index").write_text("its own")
    own = {"eval/events": "its own", "best-12.index": "its own"}
    assert copied() == {**copy_of(7), **own}


def test_an_evaluator_has_the_one_before_as_well_for_it_may_be_reading_that(root):
    with offered(root) as there:
        evaluator = replace(there.keeper, links={"checkpoints": "../../replica"})
        for step in (1, 7, 9):
            save(there.folder, step)
            assert is_offered(there, step)
            replicas._fetch(evaluator, there.beacon.checkpoint)
    assert {name.split(".")[1] for name in copied() if name != "checkpoint"} == {"ckpt-7", "ckpt-9"}
    assert state_file.read(os.fspath(home())) == ["model.ckpt-9", "model.ckpt-7"]


def test_a_large_file_comes_in_pieces(root, monkeypatch):
    monkeypatch.setattr(replicas, "PIECE", 1000)
    data = os.urandom(2500)
    with offered(root) as there:
        save(there.folder, 7)
        (there.folder / "model.ckpt-7.data-00000-of-00001").write_bytes(data)
        assert is_offered(there, 7)
        replicas._fetch(there.keeper, there.beacon.checkpoint)
    assert (home() / "model.ckpt-7.data-00000-of-00001").read_bytes() == data


def test_one_that_is_being_fetched_holds_still_though_it_is_deleted(root, monkeypatch):
    monkeypatch.setattr(replicas, "FETCH_GAP_S", 3600.0)
    with offered(root) as there:
        there.offer._read_at = -7200.0
        save(there.folder, 1)
        assert is_offered(there, 1)
        there.offer.read("model.ckpt-1.index", 0)
        save(there.folder, 7)
        for path in there.folder.glob("model.ckpt-1.*"):
            path.unlink()
        assert not eventually(lambda: there.beacon.checkpoint["step"] == 7, within_s=0.2)
        replicas._fetch(there.keeper, there.beacon.checkpoint)
        assert copied() == copy_of(1)
        there.offer._read_at = -7200.0
        assert is_offered(there, 7)


def test_what_is_new_is_fetched_again_and_again(root):
    with offered(root) as there:
        asker = SimpleNamespace(told={})
        replicas.begin(there.keeper, asker)
        for step in (1, 7):
            save(there.folder, step)
            assert is_offered(there, step)
            asker.told = {"checkpoint": there.beacon.checkpoint}
            assert eventually(lambda step=step: copied() == copy_of(step))


def test_only_the_chosen_ones_fetch(root):
    with offered(root, replicas=["worker:1"]) as there:
        save(there.folder, 7)
        assert is_offered(there, 7)
        replicas.begin(there.keeper, SimpleNamespace(told={"checkpoint": there.beacon.checkpoint}))
        assert not eventually(copied, within_s=0.2)


# Offered


def test_nothing_is_held_where_nobody_keeps_copies(root):
    with offered(root, replicas=[]) as there:
        save(there.folder, 7)
        assert not eventually(lambda: there.beacon.checkpoint, within_s=0.2)
        assert not (there.folder / replicas.PIN).exists()


def test_what_is_held_goes_with_the_offer(root):
    with offered(root) as there:
        save(there.folder, 7)
        assert is_offered(there, 7)
        assert (there.folder / replicas.PIN).is_dir()
        (there.folder / "checkpoint").unlink()
        there.offer.close()
        assert not (there.folder / replicas.PIN).exists()


@pytest.mark.parametrize(
    "file", ["checkpoint", "../launch.json", "/etc/passwd", "", ".", "model.ckpt-1.index"]
)
def test_no_other_file_is_ever_read(root, file):
    with offered(root) as there:
        save(there.folder, 7)
        assert is_offered(there, 7)
        with pytest.raises(ValueError, match="is not on offer"):
            there.offer.read(file, 0)


def test_an_offer_goes_on_after_it_could_not_be_made(root):
    with offered(root) as there:
        blocked = there.folder / replicas.PIN
        blocked.write_text("no folder")
        save(there.folder, 7)
        assert not eventually(lambda: there.beacon.checkpoint, within_s=0.2)
        blocked.unlink()
        assert is_offered(there, 7)


# What goes wrong leaves the older copy


def offers(name, *files):
    return {"name": name, "files": [{"path": path, "size": size} for path, size in files]}


def failing_once(monkeypatch, asker):
    """Set after the next fetch, which is the last: nothing is on offer from then on."""
    fetch, tried = replicas._fetch, threading.Event()

    def once(launch, offered):
        try:
            fetch(launch, offered)
        finally:
            asker.told = {}
            tried.set()

    monkeypatch.setattr(replicas, "_fetch", once)
    return tried


def test_a_broken_fetch_leaves_the_older_copy_and_no_rubbish(root, monkeypatch):
    with offered(root) as there:
        save(there.folder, 1)
        assert is_offered(there, 1)
        replicas._fetch(there.keeper, there.beacon.checkpoint)
        before = copied()
        missing = offers("model.ckpt-9", ("model.ckpt-1.index", 7), ("model.ckpt-9.index", 7))
        with pytest.raises(wire.Untrusted):
            replicas._fetch(there.keeper, missing)
        asker = SimpleNamespace(told={"checkpoint": missing})
        tried = failing_once(monkeypatch, asker)
        replicas.begin(there.keeper, asker)
        assert tried.wait(5)
        assert eventually(lambda: not (home() / ".incoming").exists())
        assert copied() == before


def test_a_file_that_is_shorter_than_was_said_is_refused(root):
    with offered(root) as there:
        save(there.folder, 7)
        assert is_offered(there, 7)
        with pytest.raises(ValueError, match="is shorter than was said"):
            replicas._fetch(there.keeper, offers("model.ckpt-7", ("model.ckpt-7.index", 99)))


@pytest.mark.parametrize("name", ["../launch.json", "{}/absolute", "a/b", "", "..", "."])
def test_nothing_is_written_anywhere_else(root, tmp_path, name):
    name = name.format(tmp_path)
    with offered(root) as there:
        with pytest.raises((ValueError, OSError)):
            replicas._fetch(there.keeper, offers("model.ckpt-7", (name, 5)))
        assert [path for path in home().rglob("*") if path.is_file()] == []
    assert not (tmp_path / "absolute").exists()
