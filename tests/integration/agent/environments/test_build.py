"""An environment is built completely or not at all, however the build ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import wheels
from support.waiting import until

from tfdeploy.agent import paths
from tfdeploy.agent.environments import build as builds
from tfdeploy.agent.environments import installers, marker
from tfdeploy.agent.refusal import Refusal
from tfdeploy.shared.protocol.environments import Built, NotInstalled

TESTS = Path(__file__).parents[3]


@pytest.fixture
def host(root, tmp_path, monkeypatch):
    """A host with uv, on which packages come from a folder of wheels."""
    return Host(tmp_path / "wheels", monkeypatch)


class Host:
    def __init__(self, folder, monkeypatch):
        self.wheels = folder
        wheels.make(folder, "tiny")
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        self.env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}

    def begin(self, *requirements, name="e", setup=(), **more):
        lines, env = [*(requirements or ["tiny"])], more.pop("env", self.env)
        order = {"constraints": [], "locked": {}, "python": "", **more}
        return builds.build("p", name, lines, setup=[*setup], env=env, **order)

    def build(self, *requirements, **more):
        """Build to the end; return the last report."""
        return [*self.begin(*requirements, **more)][-1]

    def refusal(self, *requirements, **more):
        with pytest.raises(Refusal) as refused:
            self.build(*requirements, **more)
        return refused.value.message

    @property
    def left(self):
        """What is in the folder of environments, besides locks, which are empty files."""
        return sorted(p.name for p in Path(paths.environments("p")).iterdir() if p.is_dir())


def folder(name="e"):
    return Path(paths.environment("p", name))


def output(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_an_environment_is_built_once(host):
    first, second = host.build(), host.build()
    assert (first.packages, first.fresh) == ({"tiny": "1.0"}, True)
    assert second == Built(first.packages, first.python, fresh=False)
    code = "import sys, tiny; print(tiny.VERSION, sys.prefix)"
    assert output(folder() / "bin/python", "-c", code) == f"1.0 {folder()}"
    assert os.access(folder() / "bin/tiny-version", os.X_OK)
    assert host.left == ["e"]


def test_modules_are_compiled_because_tasks_write_no_bytecode(host):
    host.build()
    assert [*folder().glob("lib/*/site-packages/__pycache__/tiny.*.pyc")]


def test_files_are_hard_links_to_the_cache(host):
    host.build()
    [module] = folder().glob("lib/*/site-packages/tiny.py")
    assert module.stat().st_nlink == 2


def test_a_host_without_uv_is_refused(host, monkeypatch):
    monkeypatch.setattr(installers, "PLACES", ())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert "no uv that runs" in host.refusal()
    assert host.left == []


def test_constraints_apply(host):
    wheels.make(host.wheels, "tiny", "2.0")
    assert host.build(constraints=["tiny<2"]).packages == {"tiny": "1.0"}


@pytest.mark.parametrize(
    ("tf_keras", "is_installed"),
    [("tf_keras==2.21", False), ("tf_keras", True)],  # tensorflow may choose its version
)
def test_tf_keras_brings_no_second_tensorflow_beside_tensorflow_cpu(host, tf_keras, is_installed):
    for name in ("tensorflow", "tensorflow_cpu"):
        wheels.make(host.wheels, name, "2.21")
    wheels.make(host.wheels, "tf_keras", "2.21", requires=("tensorflow",))
    built = host.build("tensorflow-cpu==2.21", tf_keras)
    usual = {"tensorflow-cpu": "2.21", "tf-keras": "2.21"}
    assert built.packages == {**usual, **({"tensorflow": "2.21"} if is_installed else {})}


def test_setup_runs_in_the_environment_after_the_installation(host):
    host.build(
        setup=["python -c 'import tiny' && echo $VIRTUAL_ENV > $VIRTUAL_ENV/where", "test ! -e x"]
    )
    assert (folder() / "where").read_text().strip() == str(folder())


def test_a_failed_setup_says_what_it_printed_and_leaves_nothing(host):
    words = host.refusal(setup=["echo no license >&2; exit 3"])
    assert words == "env.setup: `echo no license >&2; exit 3` exited with 3: no license"
    assert host.left == []


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        (["nothing"], "nothing was not found"),
        (["tiny<1", "tiny>1"], "you require tiny<1 and tiny>1"),
        (["other"], "has no wheels with a matching platform tag"),
    ],
)
def test_what_cannot_be_installed_is_explained_in_the_words_of_the_installer(
    host, requirement, words
):
    wheels.make(host.wheels, "other", tag="cp311-cp311-win_amd64")
    end = host.build(*requirement)
    assert isinstance(end, NotInstalled)
    assert words in end.words
    assert end.python.startswith("3.")
    assert host.left == []


def test_all_wheels_of_a_release_are_installed_without_an_index(host):
    release = Path(paths.release("p", "env-wheels-1"))
    wheels.make(release, "tiny", "3.0")
    end = host.build("ignored", env={}, wheels="env-wheels-1")
    assert end.packages == {"tiny": "3.0"}


def test_a_missing_python_version_is_refused(host, monkeypatch):
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    assert "3.99" in host.refusal(python="3.99")
    assert host.left == []


def test_a_python_that_was_replaced_makes_the_environment_incomplete(host, tmp_path):
    host.build()
    python = folder() / "bin/python"
    python.unlink()
    python.symlink_to("/bin/sh")
    assert marker.read(str(folder())) is None
    assert host.build().fresh


def test_a_build_that_is_abandoned_leaves_nothing(host):
    build = host.begin(setup=["sleep 60"])
    until(lambda: "setup" in next(build).doing, "the setup")
    build.close()
    assert host.left == []
    assert host.build().fresh


def test_a_second_build_waits_for_the_first_and_uses_it(host, tmp_path):
    go = tmp_path / "go"
    first = host.begin(setup=[f"until test -e {go}; do sleep 0.05; done"])
    until(lambda: "setup" in next(first).doing, "the setup")
    second = host.begin()
    assert next(second).doing == "waiting for another push, which builds it"
    go.touch()
    assert [*first][-1].fresh
    assert not [*second][-1].fresh


BUILD = """
import sys
sys.argv[0] = {agent!r}
from tfdeploy.agent.environments.build import build
for report in build("p", "e", ["tiny"], [], {{}}, "", ["touch {started}; exec sleep 60"], {env!r}):
    pass
"""


def test_a_killed_build_does_not_count_and_its_programs_end(host, tmp_path):
    started = tmp_path / "started"
    code = BUILD.format(agent=sys.argv[0], started=started, env=host.env)
    process = subprocess.Popen([sys.executable, "-c", code])
    until(started.exists, "the setup")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert host.left == [".e.work", "e"]
    assert marker.read(str(folder())) is None
    left = [str(folder().with_name(name)) for name in (".e.work", "e")]
    until(lambda: [*marker.leftovers("p")] == left, "the end of its programs")
    assert host.build().fresh
    assert [*marker.leftovers("p")] == []


FULL = """
import sys
sys.argv[0] = {disk!r} + "/agent/v"
from tfdeploy.agent.environments.build import build
from tfdeploy.agent.refusal import Refusal
try:
    print([*build("p", "e", ["tiny"], [], {{}}, "", [], {env!r})][-1])
except Refusal as refused:
    print(refused.message)
import os
print(os.listdir({disk!r} + "/p/envs"), os.path.exists({disk!r} + "/.cache"))
"""


@pytest.mark.slow
def test_a_disk_that_is_full_is_named_and_what_filled_it_is_removed(host, tmp_path):
    wheels.make(host.wheels, "tiny", "9.0", size=8 << 20)
    disk = tmp_path / "disk"
    disk.mkdir()
    code = FULL.format(disk=str(disk), env=host.env)
    mount = f'mount -t tmpfs -o size=4m tmpfs {disk} && exec "$0" -c "$1"'
    argv = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, sys.executable, code]
    lines = output(*argv).splitlines()
    assert lines[0] == "its disk is full: its environment can't be built"
    assert lines[1] == "['.e.lock'] False"
