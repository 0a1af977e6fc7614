"""A data set appears on a host as a release does; what is compared by time is never read there."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfdeploy import release
from tfdeploy.agent import content, releases
from tfdeploy.payload import Payloads

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
def nothing_is_read(monkeypatch):
    releases.growing.clear()
    monkeypatch.setattr(content, "sha256", None)


def known(source):
    return release.data_set("data/a", source, (), "mtime")


def begun(source):
    """What of it is still to come, and where it grows."""
    made = known(source)
    manifest = {path: list(entry) for path, entry in made.manifest.items()}
    answer = releases.lacks("p", made.id, manifest)
    return [list(manifest)[index] for index in answer["wanted"]], Path(answer["incoming"])


def pushed(source):
    made = known(source)
    wanted, _ = begun(source)
    payload = Payloads(made).of([list(made.manifest).index(path) for path in wanted])
    with pytest.MonkeyPatch.context() as patch:
        told = io.BytesIO(b"".join(payload.parts()))
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=told))
        assert releases.take("p", made.id, payload.size) == {"wrong": []}
    return Path(releases.paths.release("p", made.id))


def texts(folder):
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_arrives_has_the_time_that_it_has_at_home(root, source):
    there = pushed(source)
    assert texts(there) == texts(source)
    assert (there / "deep" / "b").stat().st_mtime_ns == 5 * SECOND + 678
    assert known(there).id == known(source).id


def test_a_file_of_another_size_is_wrong(root, source):
    made = known(source)
    begun(source)
    (source / "a").write_text("longer")
    arriving = [(list(made.manifest).index("a"), iter([b"longer"]))]
    assert "a" in releases.fill("p", made.id, iter(arriving))["wrong"]
    assert begun(source)[0] == ["a", "c", "deep/b"]


def test_what_a_broken_push_left_whole_is_not_sent_again(root, source):
    _, folder = begun(source)
    (folder / "c").write_text("three")
    os.utime(folder / "c", ns=(1, 5 * SECOND + 678))
    (folder / "a").write_text("one")  # cut off before it got its time
    assert begun(source)[0] == ["a", "deep/b"]


@pytest.mark.parametrize("unit", [100, 10**3, 10**6, SECOND])
def test_a_file_system_that_keeps_coarse_times_is_believed(root, source, unit):
    when = 5 * SECOND + 123_456_789
    os.utime(source / "c", ns=(1, when))
    _, folder = begun(source)
    (folder / "c").write_text("three")
    os.utime(folder / "c", ns=(1, when - when % unit))
    assert "c" not in begun(source)[0]
    os.utime(folder / "c", ns=(1, when - when % unit - unit))
    assert "c" in begun(source)[0]


def test_the_next_version_shares_what_has_not_changed(root, source):
    first = pushed(source)
    (source / "c").write_text("four")
    assert begun(source)[0] == ["c"]
    second = pushed(source)
    assert texts(second) == texts(source)
    shared = [os.path.samefile(first / name, second / name) for name in ("a", "deep/b", "c")]
    assert shared == [True, True, False]
    assert (first / "c").read_text() == "three"


def test_one_size_and_time_do_not_make_two_files_the_same(root, source):
    pushed(source)
    (source / "a").rename(source / "new")
    assert begun(source)[0] == ["new"]


def test_the_neighbour_is_the_last_version_of_the_same_data(root, source):
    def base(name):
        return releases.lacks("p", name, {"x": ["file", "1.1", False]}).get("base")

    for name in ("data-a-1", "f00d", "data-1", "data-a-b-1"):
        (root / "p" / "releases" / name).mkdir(parents=True)
    newest = {name: os.path.basename(base(name)) for name in ("data-a-2", "data-2", "beef")}
    assert newest == {"data-a-2": "data-a-1", "data-2": "data-1", "beef": "f00d"}
    assert base("other-1") is None
