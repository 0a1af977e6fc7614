"""A program saves and deletes while it is collected, and sees nothing of that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.ports import free_ports
from support.waiting import until

from tfdeploy.hosts.agent_session import BULK
from tfdeploy.shared import state_file

if TYPE_CHECKING:
    from support.projects import Project

pytestmark = pytest.mark.slow
SUFFIXES = ("data-00000-of-00001", "index")
# It saves as TensorFlow does with max_to_keep = 1: each file is renamed, then the state file, and
# the older checkpoint is deleted. It notes what it finds: names that are not its own, files whose
# ctime has changed since they were renamed, and a newest file by ctime that is not its newest.
SAVES = """
import json, os, re, sys, time
from pathlib import Path

folder, size, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
ctimes, strange = {}, set()

def write(name, text):
    temporary = folder / (name + ".tmp")
    temporary.write_bytes(text)
    temporary.replace(folder / name)
    ctimes[name] = (folder / name).stat().st_ctime_ns

def look(step):
    strange.update(name for name in os.listdir() if "tfdeploy" in name or name.startswith("."))
    found = os.listdir(folder)
    for name in found:
        if not re.fullmatch(r"checkpoint|ckpt-\\d+\\.(data.*|index)", name):
            strange.add(name)
        if (folder / name).stat().st_ctime_ns != ctimes.get(name):
            strange.add(name + " has another ctime")
    newest = max(folder.glob("*.index"), key=os.path.getctime)
    if newest.name != f"ckpt-{step}.index":
        strange.add(newest.name + " is the newest")

step = 0
while not Path("go").exists():
    step += 1
    write(f"ckpt-{step}.data-00000-of-00001", b"%09d\\n" % step * (size // 10))
    write(f"ckpt-{step}.index", b"%09d\\n" % step)
    write("checkpoint", b'model_checkpoint_path: "ckpt-%d"\\n' % step)
    for suffix in ("data-00000-of-00001", "index"):
        (folder / f"ckpt-{step - 1}.{suffix}").unlink(missing_ok=True)
    look(step)
    saved_at = time.monotonic()
    while time.monotonic() < saved_at + pause and not Path("go").exists():
        look(step)
        time.sleep(0.01)
Path("seen.json").write_text(json.dumps({"strange": sorted(strange), "steps": step}))
"""


def saving(world, checkpoint_dir: str, size: int, pause_s: float = 0.01) -> Project:
    """Start a chief that saves checkpoints of `size` bytes until it finds the file `go`.

    A collect takes longer than many of the default pauses.
    """
    name, host = list(world.hosts().items())[-1]
    hosts = {name: {**host, "ps": 0, "workers": 1, "ports": free_ports(2)}}
    options = {
        "command": ["python", "train.py", checkpoint_dir, str(size), str(pause_s)],
        "checkpoint_dir": checkpoint_dir,
        "role": "tf_config",
    }
    project = world.project(hosts=hosts, training=options)
    (project.folder / "train.py").write_text(SAVES)
    project.ok("push")
    project.ok("start")
    until((project.work("worker:0") / checkpoint_dir / "checkpoint").is_file, "a checkpoint")
    return project


def newest_on_host(project: Project) -> int:
    names = state_file.read(str(project.work("worker:0") / "checkpoints"))
    return state_file.step(names[0]) if names else 0


def newest_on_controller(project: Project) -> int:
    """Return the step of the newest checkpoint, which is whole."""
    folder = project.run_folder / "checkpoints"
    name = state_file.read(str(folder))[0]
    steps = {
        step for suffix in SUFFIXES for step in (folder / f"{name}.{suffix}").read_text().split()
    }
    assert steps == {f"{state_file.step(name):09}"}
    return int(steps.pop())


def seen_by_program(project: Project) -> list[str]:
    """End the program; return what it has noted."""
    work = project.work("worker:0")
    (work / "go").touch()
    until((work / "seen.json").is_file, "the end of the program")
    return json.loads((work / "seen.json").read_text())["strange"]


@pytest.mark.parametrize("size", [100, BULK + 10], ids=["small", "large"])
def test_each_collect_of_a_busy_folder_is_good(world, size):
    project = saving(world, "checkpoints", size)
    steps = [0]
    for _ in range(12):
        until(lambda: newest_on_host(project) > steps[-1], "a newer one")
        project.ok("collect")
        steps.append(newest_on_controller(project))
    assert sorted(set(steps)) == steps, "each is a newer one"
    assert seen_by_program(project) == []


@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_program_sees_nothing_of_attach(world, tmp_path, is_absolute):
    folder = str(tmp_path / "saved") if is_absolute else "checkpoints"
    # A checkpoint is reported when it was the same in two polls.
    project = saving(world, folder, 100, pause_s=2.5)
    with project.start_command("attach", "--quiet") as following:
        until(lambda: following.output.count("checkpoints/ckpt-") > 1, "checkpoints")
        assert "checkpoints/ckpt-" in project.ok("collect", "--all")
        assert seen_by_program(project) == []
        assert following.process.wait() == 0
    assert not (Path(project.work("worker:0")).parent / "held").exists()
