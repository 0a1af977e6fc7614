"""Copies of event files grow by whole records, stay in their folder, and survive interruptions."""

from __future__ import annotations

import base64
import hashlib
import resource
import signal
import zlib

import pytest
from support.builders import make_run
from support.events import NAME, record, scalar, version

from tfdeploy.commands.following.tensorboard import copies as module
from tfdeploy.commands.following.tensorboard.copies import EventCopies, OddName
from tfdeploy.errors import AgentError, TransferFailed
from tfdeploy.shared.protocol.events import EventPiece

HOSTS = "[hosts.a]\nworkers = 2\n[hosts.b]\nevaluator = true"
STEP = scalar(1, 0.5)


@pytest.fixture
def run(tmp_path):
    made = make_run(tmp_path, hosts=HOSTS)
    made.folder.mkdir(parents=True)
    return made


@pytest.fixture
def copies(run):
    made = EventCopies(run)
    made.prepare()
    return made


def piece(data, begin=0, path=NAME, task="worker:0"):
    return EventPiece(task, path, begin, base64.b64encode(zlib.compress(data)).decode())


def write(file, *parts):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(parts))


def test_pieces_are_stored_by_task_and_path(copies):
    copies.write("a", piece(version()))
    copies.write("a", piece(STEP, len(version())))
    copies.write("a", piece(version(), path=f"logs/train/{NAME}", task="worker:1"))
    assert (copies.folder / "worker-0" / NAME).read_bytes() == version() + STEP
    assert (copies.folder / "worker-1" / "logs" / "train" / NAME).read_bytes() == version()
    assert copies.counts() == {
        "worker:0": (1, len(version() + STEP)),
        "worker:1": (1, len(version())),
    }
    digest = hashlib.sha256(version() + STEP).hexdigest()
    assert copies.present(["worker:0"]) == [("worker:0", NAME, len(version() + STEP), digest)]


def test_a_piece_that_comes_twice_changes_nothing(copies):
    for data, begin in [(version(), 0), (STEP, len(version())), (version(), 0)]:
        copies.write("a", piece(data, begin))
    assert (copies.folder / "worker-0" / NAME).read_bytes() == version() + STEP


def test_another_file_replaces_the_copy(copies):
    copies.write("a", piece(version() + STEP))
    copies.write("a", piece(version(9.0)))
    assert (copies.folder / "worker-0" / NAME).read_bytes() == version(9.0)
    assert [file.name for file in (copies.folder / "worker-0").iterdir()] == [NAME]


@pytest.mark.parametrize(
    "path", [f"../{NAME}", f"/tmp/{NAME}", f"a/../../{NAME}", "model.ckpt", "", ".", f"../\n{NAME}",
             f"{NAME}/x", "..", f"/a\u00a0/{NAME}"],
)  # fmt: skip
def test_a_host_can_write_only_event_files_below_its_task(copies, path):
    with pytest.raises(AgentError, match="which is refused"):
        copies.write("a", piece(version(), path=path))
    assert list(copies.folder.rglob("*")) == []


@pytest.mark.parametrize("path", [f"a\n/{NAME}", f"a\u00a0b/{NAME}", f"\t/{NAME}", f"{NAME}\udcff"])
def test_a_name_that_cannot_be_printed_is_not_stored(copies, path):
    with pytest.raises(OddName, match="characters that can't be printed"):
        copies.write("a", piece(version(), path=path))
    assert list(copies.folder.rglob("*")) == []


def test_the_tasks_of_a_new_plan_are_stored_beside_those_of_the_old_one(run, copies, tmp_path):
    copies.write("a", piece(version()))
    copies.follow(make_run(tmp_path, hosts="[hosts.a]\nworkers = 1\n[hosts.c]\nps = 1"))
    copies.write("c", piece(version(), task="ps:0"))
    assert copies.counts().keys() == {"worker:0", "ps:0"}


@pytest.mark.parametrize("data", [b"", version()[:-1], version() + STEP[:5], b"x" * 50])
def test_a_host_can_send_only_whole_records(copies, data):
    with pytest.raises(AgentError, match="not whole records of an event file"):
        copies.write("a", piece(data))
    assert list(copies.folder.rglob("*")) == []


@pytest.mark.parametrize(("begin", "data"), [(-1, "eJwDAAAAAAE="), (0, "no zlib"), (0, "é")])
def test_a_piece_that_makes_no_sense_is_refused(copies, begin, data):
    with pytest.raises(AgentError, match="not whole records"):
        copies.write("a", EventPiece("worker:0", NAME, begin, data))


def test_a_gap_is_refused(copies):
    copies.write("a", piece(version()))
    with pytest.raises(AgentError, match=r"from byte 999 on, after \d+$"):
        copies.write("a", piece(STEP, 999))


def test_a_host_cannot_fill_the_disk_with_files_or_bytes(copies, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILES", 1)
    copies.write("a", piece(version()))
    copies.write("a", piece(STEP, len(version())))
    with pytest.raises(AgentError, match="more than 1 event files"):
        copies.write("a", piece(version(), path=f"x/{NAME}"))
    monkeypatch.setattr(module, "FREE_BYTES", 1 << 60)
    with pytest.raises(TransferFailed, match="MB are free on the disk"):
        copies.write("a", piece(STEP, len(version() + STEP)))


@pytest.mark.parametrize("place", ["worker-0", f"worker-0/{NAME}"])
def test_nothing_is_written_through_a_link(copies, tmp_path, place):
    (tmp_path / "elsewhere").mkdir()
    (copies.folder / place).parent.mkdir(exist_ok=True)
    (copies.folder / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="it is a link"):
        copies.write("a", piece(version()))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_is_a_link_is_refused(run, tmp_path):
    (run.folder / "tensorboard").symlink_to(tmp_path)
    with pytest.raises(OSError, match="it is a link"):
        EventCopies(run).prepare()


def test_what_an_interruption_left_unfinished_is_cut(run):
    file = run.folder / "tensorboard" / "worker-0" / NAME
    for cut in range(len(STEP)):
        write(file, version(), STEP[:cut])
        EventCopies(run).prepare()
        assert file.read_bytes() == version()


def test_a_copy_that_the_disk_has_changed_is_cut_before_the_change(run):
    file = run.folder / "tensorboard" / "worker-0" / NAME
    changed = record(b"x" * 500_000)[:-1] + b"!"
    write(file, version(), changed, record(bytes(900_000)))
    EventCopies(run).prepare()
    assert file.read_bytes() == version()


def test_what_collect_has_fetched_is_taken_over_in_whole_records(run):
    events, folder = run.folder / "events", run.folder / "tensorboard"
    write(events / "train" / NAME, version(), STEP, STEP[:7])
    write(events / "evaluator-0" / "eval" / NAME, version())
    write(events / NAME, version())
    write(folder / "worker-0" / NAME, version(), STEP)  # longer than what was collected
    EventCopies(run).prepare()
    found = {file.relative_to(folder).as_posix(): file.read_bytes() for file in files(folder)}
    assert found == {
        f"worker-0/{NAME}": version() + STEP,
        f"worker-0/train/{NAME}": version() + STEP,
        f"evaluator-0/eval/{NAME}": version(),
    }


def files(folder):
    return [file for file in folder.rglob("*") if file.is_file()]


def test_a_full_disk_leaves_a_copy_as_it_was(copies):
    copies.write("a", piece(version()))
    size = len(version())
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        with pytest.raises(OSError, match="No space left"):
            copies.write("a", piece(STEP, size))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert (copies.folder / "worker-0" / NAME).read_bytes() == version()
