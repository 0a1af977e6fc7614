"""A data set is received as a release is; a file that is compared by its time is not read."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfdeploy.agent.releases import receive
from tfdeploy.release import snapshot
from tfdeploy.shared import filesystem
from tfdeploy.transfer.pack import PackCache

SECOND = 10**9


@pytest.fixture
def source(tmp_path):
    """Three files, two of them of the same size and time."""
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    for name, text in {"a": "one", "deep/b": "two", "c": "three"}.items():
        (folder / name).write_text(text)
        os.utime(folder / name, ns=(1, 5 * SECOND + 678))
    return folder


@pytest.fixture(autouse=True)
def no_file_is_hashed(monkeypatch):
    receive.staged.clear()
    monkeypatch.setattr(filesystem, "sha256", None)


def data_set(source):
    return snapshot.take_data_set("data/a", source, (), "mtime")


def start_release(source):
    """Start the data set; return its missing files, and its folder."""
    data = data_set(source)
    manifest = {path: list(entry) for path, entry in data.manifest.items()}
    answer = receive.lacks("p", data.id, manifest)
    return [list(manifest)[index] for index in answer.wanted], Path(answer.incoming)


def push(source):
    data = data_set(source)
    wanted, _ = start_release(source)
    payload = PackCache(data).get([list(data.manifest).index(path) for path in wanted])
    with pytest.MonkeyPatch.context() as patch:
        stdin = io.BytesIO(b"".join(payload.blocks()))
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=stdin))
        assert receive.take("p", data.id, payload.size).wrong == []
    return Path(receive.paths.release("p", data.id))


def texts(folder):
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_received_files_have_the_times_that_they_have_on_the_controller(root, source):
    received = push(source)
    assert texts(received) == texts(source)
    assert (received / "deep" / "b").stat().st_mtime_ns == 5 * SECOND + 678
    assert data_set(received).id == data_set(source).id


def test_a_file_of_another_size_is_reported(root, source):
    data = data_set(source)
    start_release(source)
    (source / "a").write_text("longer")
    files = [(list(data.manifest).index("a"), iter([b"longer"]))]
    assert "a" in receive.complete("p", data.id, iter(files)).wrong
    assert start_release(source)[0] == ["a", "c", "deep/b"]


def test_complete_files_of_an_interrupted_push_are_not_sent_again(root, source):
    _, folder = start_release(source)
    (folder / "c").write_text("three")
    os.utime(folder / "c", ns=(1, 5 * SECOND + 678))
    (folder / "a").write_text("one")  # cut off before it got its time
    assert start_release(source)[0] == ["a", "deep/b"]


@pytest.mark.parametrize("resolution", [100, 10**3, 10**6, SECOND])
def test_a_time_that_the_file_system_rounded_down_matches(root, source, resolution):
    when = 5 * SECOND + 123_456_789
    os.utime(source / "c", ns=(1, when))
    _, folder = start_release(source)
    (folder / "c").write_text("three")
    os.utime(folder / "c", ns=(1, when - when % resolution))
    assert "c" not in start_release(source)[0]
    os.utime(folder / "c", ns=(1, when - when % resolution - resolution))
    assert "c" in start_release(source)[0]


def test_the_next_version_links_the_files_that_have_not_changed(root, source):
    first = push(source)
    (source / "c").write_text("four")
    assert start_release(source)[0] == ["c"]
    second = push(source)
    assert texts(second) == texts(source)
    linked = [os.path.samefile(first / name, second / name) for name in ("a", "deep/b", "c")]
    assert linked == [True, True, False]
    assert (first / "c").read_text() == "three"


def test_files_of_the_same_size_and_time_are_not_taken_for_each_other(root, source):
    push(source)
    (source / "a").rename(source / "new")
    assert start_release(source)[0] == ["new"]


def test_the_base_release_is_the_newest_version_of_the_same_data(root, source):
    def base(name):
        return receive.lacks("p", name, {"x": ["file", "1.1", False]}).base

    for name in ("data-a-1", "f00d", "data-1", "data-a-b-1"):
        (root / "p" / "releases" / name).mkdir(parents=True)
    bases = {name: os.path.basename(base(name)) for name in ("data-a-2", "data-2", "beef")}
    assert bases == {"data-a-2": "data-a-1", "data-2": "data-1", "beef": "f00d"}
    assert base("other-1") is None
