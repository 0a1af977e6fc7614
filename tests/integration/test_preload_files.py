"""The preloaded library: which of the files that a task's processes write are recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tfdeploy

LIBRARY = Path(tfdeploy.__file__).parent / "inside" / "preload" / f"{os.uname().machine}.so"


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def record(tmp_path):
    """A function that runs words in a task's directory, and returns what was recorded: paths, those
    in the folder `out` relative to it."""
    task_dir = Path(os.path.realpath(tmp_path)) / "task"
    (task_dir / "work").mkdir(parents=True)

    def run(*words, **more):
        env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "TFDEPLOY_SAVES": f"{task_dir}/saves"}
        done = subprocess.run(
            words, cwd=task_dir / "work", env={**env, **more}, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        return recorded()

    def recorded(name="saves"):
        file = task_dir / name
        paths = file.read_bytes().split(b"\0")[:-1] if file.exists() else []
        return [os.fsdecode(path).replace(f"{task_dir.parent}/out/", "") for path in paths]

    run.recorded = recorded
    return run


def python(record, code, *words, **more):
    return record(sys.executable, "-S", "-c", code, *map(str, words), **more)


OPENS = """
import os, sys
os.chdir(sys.argv[1])
for mode in ("w", "ab", "x", "r+"):
    open({"r+": "w"}.get(mode, mode), mode).close()
os.close(os.open("os", os.O_RDWR | os.O_CREAT))
folder = os.open(".", os.O_RDONLY)
os.close(os.open("at", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
os.rename("w", "renamed")
os.rename("ab", "renamed-at", dst_dir_fd=folder)
os.makedirs("a/b")
os.mkdir("c", dir_fd=folder)
os.rename("a", "d")
"""


def test_what_is_opened_for_writing_renamed_or_made_is_recorded_once(record, out):
    made = ["w", "ab", "x", "os", "at", "renamed", "renamed-at", "a/", "a/b/", "c/", "d/"]
    assert python(record, OPENS, out) == made


def test_what_is_read_or_in_the_tasks_directory_is_not_recorded(record, out):
    (out / "data").write_text("x")
    code = (
        "import os, sys; open(sys.argv[1]).read(); open('own', 'w'); os.mkdir('made');"
        "open('../work/made/deep', 'w'); os.rename('own', 'made/renamed'); open('/dev/null', 'r')"
    )
    assert python(record, code, out / "data") == []


def test_a_path_is_recorded_without_links(record, out, tmp_path):
    (tmp_path / "link").symlink_to("out")
    (tmp_path / "task/work/models").symlink_to(tmp_path / "link")
    code = "open('models/a', 'w'); open('../work/../../link/b', 'w'); open('../beside', 'w')"
    assert python(record, code) == ["a", "b", os.path.realpath(tmp_path / "task/beside")]


def test_commands_threads_and_forked_children_are_recorded(record, out):
    code = """
import os, subprocess, sys, threading
os.chdir(sys.argv[1])
subprocess.run("echo > shell; cp shell copy; mv copy moved", shell=True, check=True)
threads = [threading.Thread(target=open, args=(f"thread-{number}", "w")) for number in range(9)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if not os.fork():
    open("child", "w"); os._exit(0)
os.wait()
"""
    threads = {f"thread-{number}" for number in range(9)}
    assert {*python(record, code, out)} == {"shell", "copy", "moved", "child", *threads}


def test_a_program_that_is_started_again_adds_to_the_record(record, out):
    code = "import sys; open(sys.argv[1], 'w')"
    python(record, code, out / "first")
    assert python(record, code, out / "second") == ["first", "second"]


def test_errors_and_modes_are_those_of_the_system(record, out):
    code = """
import os, stat, sys
os.chdir(sys.argv[1]); os.umask(0o027)
for write in (lambda: open("no/file", "w"), lambda: os.mkdir("no/folder"),
              lambda: os.rename("no", "other"), lambda: os.open("x" * 300, os.O_CREAT)):
    try:
        write()
    except OSError as error:
        print(error.errno)
for make in (lambda: open("file", "w"), lambda: os.mkdir("folder")):
    make()
print([oct(stat.S_IMODE(os.stat(name).st_mode)) for name in ("file", "folder")])
"""
    plain = subprocess.run([sys.executable, "-c", code, str(out)], capture_output=True, text=True)
    for name in ("file", "folder"):
        (out / name).rename(out.with_name(name))
    printed = "import sys; sys.stdout = open('../printed', 'w')\n" + code
    assert python(record, printed, out)[-2:] == ["file", "folder/"]
    assert (out.parent / "task/printed").read_text() == plain.stdout
    assert plain.stdout.startswith("2\n2\n2\n36\n['0o640', '0o750']")


@pytest.mark.parametrize("place", ["", "/no/such/folder/saves", "x" * 4090, "saves"])
def test_a_record_that_can_not_be_written_stops_nobody(record, out, place):
    assert python(record, OPENS, out, TFDEPLOY_SAVES=place) == []
    assert (out / "renamed").exists()


def test_a_program_in_a_deleted_directory_continues(record, out):
    code = (
        "import os, shutil, sys; shutil.rmtree(os.getcwd()); open(sys.argv[1], 'w');"
        "os.path.exists('x') or sys.exit(os.path.exists('x'))"
    )
    assert python(record, code, out / "a") == ["a"]


def test_the_record_is_limited_and_has_the_newest(record, out):
    code = """
import os, sys
os.chdir(sys.argv[1])
for number in range(6000):
    name = f"{number:0200}"
    open(name, "w").close()
    os.remove(name)
"""
    newest = python(record, code, out)
    older = record.recorded("saves.1")
    files = [out.parent / "task" / name for name in ("saves", "saves.1")]
    assert sum(file.stat().st_size for file in files) < 1 << 20 < 6000 * 200
    last = [f"{number:0200}" for number in range(6000 - len(older) - len(newest), 6000)]
    assert older + newest == last
