"""The chief's newest checkpoints in the directories of synchronous workers, before they start."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.builders import heartbeat_server, make_heartbeat_settings, make_launch
from support.chief import save

from tfdeploy.agent import paths
from tfdeploy.agent.outputs import listing
from tfdeploy.agent.supervision import membership
from tfdeploy.agent.supervision.heartbeat import client
from tfdeploy.agent.supervision.heartbeat.messages import Offer
from tfdeploy.agent.supervision.replication import backups, offered_files
from tfdeploy.agent.supervision.replication.replicas import CheckpointOffer
from tfdeploy.shared import records, state_file
from tfdeploy.shared.records import PROCESS, OutputSelection
from tfdeploy.shared.units import Walk

TASKS = ["worker:0", "worker:1"]


@contextmanager
def two_workers():
    """Run the supervisor's server of worker:0. `fetch` does what happens before worker:1 starts."""
    dirs = [paths.task("p", "r", task) for task in TASKS]
    chief, other = (Path(paths.work(task_dir)) for task_dir in dirs)
    for work in (chief, other):
        work.mkdir(parents=True)
    offer = CheckpointOffer(make_launch(heartbeat=make_heartbeat_settings(tasks=TASKS)), dirs[0])
    with heartbeat_server(offer.read, offer.offer_backup, tasks=TASKS) as (_, settings):
        outputs = OutputSelection([[True, "."]], [])
        launch = make_launch(index=1, heartbeat=settings, outputs=outputs)
        records.write(paths.launch(dirs[1]), records.to_json(launch))
        yield SimpleNamespace(
            chief=chief, other=other, fetch=lambda: backups.fetch(launch, dirs[1]), dir=dirs[1]
        )


def backup(work, *steps):
    """Save as the chief's BackupAndRestore does: it keeps only the newest one."""
    folder = work / "state/backup/chief"
    folder.mkdir(parents=True, exist_ok=True)
    for step in steps:
        for old in folder.iterdir():
            old.unlink()
        save(folder, step)
    return folder


def tree(work):
    return {
        file.relative_to(work).as_posix(): file.read_text()
        for file in work.rglob("*")
        if file.is_file() and file.name != "checkpoint"
    }


def outputs():
    return [unit.path for unit in listing.outputs("p", "r", "worker:1").outputs]


def test_a_worker_gets_the_chiefs_newest_checkpoint_of_each_folder(root):
    with two_workers() as run:
        backup(run.chief, 3)
        (run.chief / "saves").mkdir()
        save(run.chief / "saves", 10)
        save(run.chief / "saves", 20, keep=[10])
        (run.chief / "best.csv").write_text("the chief's alone")
        run.fetch()
        newest = {path: text for path, text in tree(run.chief).items() if "-10." not in path}
        newest.pop("best.csv")
        assert tree(run.other) == newest
        assert state_file.read(str(run.other / "saves")) == ["model.ckpt-20"]
        assert state_file.read(str(run.other / "state/backup/chief")) == ["model.ckpt-3"]


def test_older_copies_are_removed_also_when_the_chief_has_no_checkpoint_any_more(root):
    with two_workers() as run:
        folder = backup(run.chief, 3)
        run.fetch()
        backup(run.chief, 4)
        run.fetch()
        assert tree(run.other) == tree(run.chief)
        for file in folder.iterdir():
            file.unlink()
        run.fetch()
        assert [path for path in run.other.rglob("*") if path.is_file()] == []


def test_a_folder_in_which_the_worker_has_saved_stays_as_it_is(root):
    with two_workers() as run:
        (run.chief / "own").mkdir()
        (run.other / "own").mkdir()
        save(run.chief / "own", 8)
        save(run.other / "own", 7)
        backup(run.chief, 3)
        run.fetch()
        save(run.other / "state/backup/chief", 5, keep=[3])
        backup(run.chief, 6)
        before = tree(run.other)
        run.fetch()
        assert tree(run.other) == before
        assert state_file.read(str(run.other / "own")) == ["model.ckpt-7"]


def test_copies_are_no_outputs_of_the_worker(root):
    with two_workers() as run:
        backup(run.chief, 3)
        run.fetch()
        (run.other / "result.csv").write_text("its own")
        assert outputs() == ["result.csv"]
        save(run.other / "state/backup/chief", 5)
        assert set(outputs()) > {"state/backup/chief/model.ckpt-5", "result.csv"}


def test_nothing_is_placed_through_a_link(root, tmp_path):
    release = tmp_path / "release"
    release.mkdir()
    with two_workers() as run:
        backup(run.chief, 3)
        (run.other / "state").symlink_to(release)
        run.fetch()
        assert [*release.iterdir()] == []


def test_a_chief_that_lies_places_no_file_outside_of_the_checkpoints_folder(root, tmp_path):
    release = tmp_path / "release"
    release.mkdir()
    with two_workers() as run:
        backup(run.chief, 3)
        (run.chief / "code").mkdir()
        (run.chief / "code/train.py").write_text("another program")
        (run.other / "code").symlink_to(release)
        walk = Walk.units

        def units(self, folder, root):
            for unit in walk(self, folder, root):
                info = (run.chief / "code/train.py").stat()
                unit.files["code/train.py"] = (info.st_size, info.st_mtime_ns)
                yield unit

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Walk, "units", units)
            run.fetch()
        assert [*release.iterdir()] == []


@pytest.mark.parametrize("listed", [[{"kind": "set"}], 3, [3]])
def test_an_invalid_list_is_refused(monkeypatch, listed):
    text = json.dumps(listed).encode()
    monkeypatch.setattr(client, "fetch_file", lambda *words: words[-1].write(text))
    with pytest.raises(ValueError, match="invalid"):
        offered_files.fetch_list(make_heartbeat_settings(), Offer(".list-1", len(text)))


def test_a_backup_is_fetched_again_if_the_chief_replaces_it_meanwhile(root, monkeypatch):
    monkeypatch.setattr(backups, "RETRY_S", 0.0)
    fetch_list, lists = backups.offered_files.fetch_list, []

    with two_workers() as run:

        def then_save(settings, offer):
            found = fetch_list(settings, offer)
            if not lists:
                backup(run.chief, 4)
            lists.append(found)
            return found

        monkeypatch.setattr(backups.offered_files, "fetch_list", then_save)
        backup(run.chief, 3)
        run.fetch()
        assert tree(run.other) == tree(run.chief)
        assert len(lists) == 2
        stored = json.loads(Path(paths.given(run.dir)).read_text())
        assert {path.rpartition("/")[2].partition(".data")[0] for path in stored} == {
            "model.ckpt-4", "model.ckpt-4.index", "model.ckpt-4.meta"
        }  # fmt: skip


def test_a_worker_starts_without_a_backup_if_the_chief_does_not_answer(root, monkeypatch, capsys):
    monkeypatch.setattr(backups, "LIMIT_S", -1.0)
    with two_workers() as run:
        pass
    run.fetch()
    assert "no checkpoints from the chief: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("needed", "changes", "is_restart"),
    [
        (True, {}, True),
        (True, {"age_s": 60.0}, False),
        (False, {}, False),
        (False, {"ready": PROCESS}, True),
        (False, {"job": "evaluator", "index": 0}, True),
        (False, {"heartbeat": make_heartbeat_settings(port=1)}, True),
    ],
    ids=["restart", "resume", "first start", "no cluster", "evaluator", "with a ps"],
)
def test_which_starts_need_the_chiefs_checkpoints(root, monkeypatch, needed, changes, is_restart):
    monkeypatch.setattr(membership, "HeartbeatClient", lambda *words: None)
    settings = make_heartbeat_settings(port=1, tasks=TASKS)
    launch = make_launch(**{"index": 1, "heartbeat": settings, **changes})
    found = membership.join(launch, "", lambda: None, list).backup(is_restart)
    assert (found is not None) == needed
